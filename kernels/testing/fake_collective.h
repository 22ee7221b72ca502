// FakeCollective: a collective (kernels/collective.h) of fake devices. FakeDevice::Join makes it.
//
// A call enqueues one item per member, a "meeting". It runs once these items are the first on that
// stream of every member. A member that waits runs items of the others, before its own work or when
// its own work cannot go on, in an order drawn from its seed. It fails if it needs work of a member
// that has failed. HostCollective computes the result. Thread safety: one thread uses it.
#ifndef CAPSTAN_KERNELS_TESTING_FAKE_COLLECTIVE_H_
#define CAPSTAN_KERNELS_TESTING_FAKE_COLLECTIVE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/collective.h"
#include "kernels/testing/fake_device.h"
#include "kernels/testing/host_collective.h"

namespace capstan::kernels {

class FakeCollective final : public Collective {
 public:
  // Implements first.Join(members) (DeviceBackend).
  static absl::StatusOr<std::unique_ptr<Collective>> Create(
      FakeDevice& first, absl::Span<DeviceBackend* const> members);
  ~FakeCollective() override;
  FakeCollective(const FakeCollective&) = delete;
  FakeCollective& operator=(const FakeCollective&) = delete;

  absl::Status Broadcast(Stream stream, absl::Span<float* const> arrays, int64_t count) override {
    return Meet(CollectiveKind::kBroadcast, stream, arrays, count);
  }
  absl::Status Reduce(Stream stream, absl::Span<float* const> arrays, int64_t count) override {
    return Meet(CollectiveKind::kReduce, stream, arrays, count);
  }
  absl::Status AllReduce(Stream stream, absl::Span<float* const> arrays, int64_t count) override {
    return Meet(CollectiveKind::kAllReduce, stream, arrays, count);
  }
  absl::Status ReduceScatter(Stream stream, absl::Span<float* const> arrays,
                             int64_t count) override {
    return Meet(CollectiveKind::kReduceScatter, stream, arrays, count);
  }
  absl::Status AllGather(Stream stream, absl::Span<float* const> arrays, int64_t count) override {
    return Meet(CollectiveKind::kAllGather, stream, arrays, count);
  }

  // FakeDevice calls these two.
  const std::vector<FakeDevice*>& members() const { return members_; }
  // True if no member has failed and each has the meeting's item first on `stream`.
  bool AllHere(int stream, int64_t meeting) const;

 private:
  explicit FakeCollective(std::vector<FakeDevice*> members);
  // Enqueues a meeting of all members on `stream`, which runs Exchange.
  absl::Status Meet(CollectiveKind kind, Stream stream, absl::Span<float* const> arrays,
                    int64_t count);
  absl::Status Exchange(CollectiveKind kind, const std::vector<float*>& addresses, int64_t count);

  const std::vector<FakeDevice*> members_;
  int64_t meetings_ = 0;
};

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_TESTING_FAKE_COLLECTIVE_H_
