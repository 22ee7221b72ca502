// HostCollective: computes one call of a collective on arrays in host memory.
//
//   kind            member i sends          member i receives
//   kBroadcast      member 0: its array     all others: member 0's array
//   kReduce         its array               member 0: the sum of all arrays
//   kAllReduce      its array               the sum of all arrays
//   kReduceScatter  all parts of its array  part i of the sum of all arrays
//   kAllGather      its part                the parts of all, in the members' order
//
// It copies what a member sends, so the member may then change its array before the others have
// received. TreeSum adds. Fake devices (fake_collective.h) and the emulated GPUs' NCCL
// (kernels/cuda/emulation/libraries/nccl.cc) use it. Thread safety: thread-compatible.
#ifndef CAPSTAN_KERNELS_TESTING_HOST_COLLECTIVE_H_
#define CAPSTAN_KERNELS_TESTING_HOST_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace capstan::kernels {

enum class CollectiveKind { kBroadcast, kReduce, kAllReduce, kReduceScatter, kAllGather };

class HostCollective {
 public:
  //   count  elements of an array; for kReduceScatter and kAllGather, of one member's part
  HostCollective(CollectiveKind kind, size_t members, int64_t count);

  bool Sends(size_t member) const;
  bool Receives(size_t member) const;
  int64_t sent_count() const;      // Elements that each sending member sends.
  int64_t received_count() const;  // Elements that each receiving member receives.

  // Copies the values that a member sends: [sent_count()]. REQUIRES: Sends(member).
  void Send(size_t member, const float* values);
  // Writes the values that a member receives: [received_count()].
  // REQUIRES: Receives(member); all members that send have sent.
  void Receive(size_t member, float* values) const;

 private:
  const CollectiveKind kind_;
  const size_t members_;
  const int64_t count_;
  std::vector<std::vector<float>> sent_;  // Indexed by member.
};

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_TESTING_HOST_COLLECTIVE_H_
