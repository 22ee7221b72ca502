// FakeCollective: fake devices that work together (kernels/collective.h).
//
// What was enqueued together runs once it is the first item left on that stream of each member. A
// member that waits has the others run, before its own work or when that cannot go on, in an order
// drawn from its seed; it fails if one is lost. host_collective.h computes.
// Thread safety: used by one thread.
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
  // As DeviceBackend::Join, of `first`.
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

  // For FakeDevice.
  const std::vector<FakeDevice*>& members() const { return members_; }
  // Whether every member has come to that meeting.
  bool AllHere(int stream, int64_t meeting) const;

 private:
  explicit FakeCollective(std::vector<FakeDevice*> members);
  // Has all members meet on `stream`, and then send and receive.
  absl::Status Meet(CollectiveKind kind, Stream stream, absl::Span<float* const> arrays,
                    int64_t count);
  absl::Status Exchange(CollectiveKind kind, const std::vector<float*>& addresses, int64_t count);

  const std::vector<FakeDevice*> members_;
  int64_t meetings_ = 0;
};

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_TESTING_FAKE_COLLECTIVE_H_
