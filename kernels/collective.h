// Collective: what the devices of one host do together: hand arrays on, and add arrays up.
//
// Each call is enqueued on the same stream of every member and returns at once. It runs once all
// members have come to it there, calls of one collective in their order:
//
//   member 0   ──copy──┐            ──Run──┐
//   member 1           ├─Broadcast─► ──Run──┼─Reduce─► member 0 ──copy──►
//   member 2           ┘            ──Run──┘
//
// While there is a collective, a member that waits (Copy, Await, Synchronize) notices when another
// one fails, whose part of the work would never come: the error has that one's code, and names it.
// Then the collective is of no use any more, nor are its members' streams. What calls enqueue is
// not recorded in graphs. Thread safety: as its members': used by one thread at a time.
#ifndef CAPSTAN_KERNELS_COLLECTIVE_H_
#define CAPSTAN_KERNELS_COLLECTIVE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device_backend.h"

namespace capstan::kernels {

// Made by DeviceBackend::Join. Freed before its members, and when nothing runs.
class Collective {
 public:
  virtual ~Collective() = default;

  // arrays[i]: [count] fp32 in the memory of member i, one for each member, count >= 0. Sums are
  // fp32; their order is the implementation's, and the same on every run on the same devices.
  // Errors: kInvalidArgument     another number of arrays, a negative count.
  //         kFailedPrecondition  a member is recording.
  //         else                 those of the devices.
  //
  // arrays[i] = arrays[0].
  virtual absl::Status Broadcast(Stream stream, absl::Span<float* const> arrays, int64_t count) = 0;
  // arrays[0] = the sum of all arrays; the others stay as they are.
  virtual absl::Status Reduce(Stream stream, absl::Span<float* const> arrays, int64_t count) = 0;
  // arrays[i] = the sum of all arrays.
  virtual absl::Status AllReduce(Stream stream, absl::Span<float* const> arrays, int64_t count) = 0;

  // For these, arrays[i] is as many parts of `count` elements as there are members.
  //
  // Part i of arrays[i] = the sum of part i of all arrays; what its other parts hold then is not
  // defined.
  virtual absl::Status ReduceScatter(Stream stream, absl::Span<float* const> arrays,
                                     int64_t count) = 0;
  // Part j of arrays[i] = part j of arrays[j].
  virtual absl::Status AllGather(Stream stream, absl::Span<float* const> arrays, int64_t count) = 0;
};

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_COLLECTIVE_H_
