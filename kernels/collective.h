// Collective: operations in which all devices of one host take part: they distribute arrays among
// the members, and sum arrays over the members. A trainer with several devices uses it.
//
// Each call is enqueued on the same stream of every member and returns at once. It runs once every
// member has reached it on that stream; the calls of one collective run in the order in which they
// were made:
//
//   member 0   ──copy──┐            ──Run──┐
//   member 1           ├─Broadcast─► ──Run──┼─Reduce─► member 0 ──copy──►
//   member 2           ┘            ──Run──┘
//
// While there is a collective, a member that waits (Copy, Await, Synchronize) notices when another
// member fails, because the failed member's part of the work would never arrive. The wait then
// returns the failed member's error code and names that member. After that neither the collective
// nor its members' streams can be used any more. Graphs cannot record calls of a collective.
// Thread safety: one thread at a time uses the collective and its members.
#ifndef CAPSTAN_KERNELS_COLLECTIVE_H_
#define CAPSTAN_KERNELS_COLLECTIVE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device_backend.h"

namespace capstan::kernels {

// DeviceBackend::Join makes it. REQUIRES: it is freed before its members, and when nothing runs.
class Collective {
 public:
  virtual ~Collective() = default;

  // arrays[i]: [count] fp32 in the memory of member i, one for each member, count >= 0. Sums are
  // fp32; the implementation chooses their order, which is the same on every run on the same
  // devices.
  // Errors: kInvalidArgument     the number of arrays is not that of members, or count < 0.
  //         kFailedPrecondition  a member is recording.
  //         else                 those of the devices.
  //
  // arrays[i] = arrays[0].
  virtual absl::Status Broadcast(Stream stream, absl::Span<float* const> arrays, int64_t count) = 0;
  // arrays[0] = the sum of all arrays; the others stay as they are.
  virtual absl::Status Reduce(Stream stream, absl::Span<float* const> arrays, int64_t count) = 0;
  // arrays[i] = the sum of all arrays.
  virtual absl::Status AllReduce(Stream stream, absl::Span<float* const> arrays, int64_t count) = 0;

  // In ReduceScatter and AllGather arrays[i] is [members, count]: one part for each member.
  //
  // Part i of arrays[i] = the sum of part i of all arrays. The other parts of arrays[i] are then
  // undefined.
  virtual absl::Status ReduceScatter(Stream stream, absl::Span<float* const> arrays,
                                     int64_t count) = 0;
  // Part j of arrays[i] = part j of arrays[j].
  virtual absl::Status AllGather(Stream stream, absl::Span<float* const> arrays, int64_t count) = 0;
};

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_COLLECTIVE_H_
