#include "kernels/testing/fake_collective.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/tree_sum.h"

namespace capstan::kernels {

absl::StatusOr<std::unique_ptr<Collective>> FakeCollective::Create(
    FakeDevice& first, absl::Span<DeviceBackend* const> members) {
  std::vector<FakeDevice*> devices;
  for (DeviceBackend* const member : members) {
    auto* const device = dynamic_cast<FakeDevice*>(member);
    if (device == nullptr || device->collective_ != nullptr ||
        std::find(devices.begin(), devices.end(), device) != devices.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(member->Label(),
                       " cannot be joined: it is another kind of device, or is "
                       "joined already"));
    }
    devices.push_back(device);
  }
  if (devices.empty() || devices[0] != &first) {
    return absl::InvalidArgumentError(
        absl::StrCat(first.Label(), " joins ", members.size(), " devices, expected it first"));
  }
  return std::unique_ptr<Collective>(new FakeCollective(std::move(devices)));
}

FakeCollective::FakeCollective(std::vector<FakeDevice*> members) : members_(std::move(members)) {
  for (FakeDevice* const member : members_) member->collective_ = this;
}

FakeCollective::~FakeCollective() {
  for (FakeDevice* const member : members_) {
    for (auto& queue : member->queues_) queue.clear();  // Nothing runs, or a member is lost.
    member->collective_ = nullptr;
  }
}

bool FakeCollective::AllHere(int stream, int64_t meeting) const {
  return std::all_of(members_.begin(), members_.end(), [&](const FakeDevice* member) {
    const auto& queue = member->queues_[static_cast<size_t>(stream)];
    return member->error_.ok() && !queue.empty() && queue.front().meeting == meeting;
  });
}

absl::Status FakeCollective::Meet(
    Stream stream, absl::Span<float* const> arrays, int64_t count,
    const std::function<void(const std::vector<float*>& arrays)>& act) {
  if (arrays.size() != members_.size() || count < 0) {
    return absl::InvalidArgumentError(absl::StrCat(arrays.size(), " arrays of ", count,
                                                   ", expected ", members_.size(), " of >= 0"));
  }
  for (const FakeDevice* member : members_) {
    if (member->capturing_) return absl::FailedPreconditionError("it is not recorded");
  }
  if (members_[0]->Forgotten(FakeDevice::Call::kTogether)) return absl::OkStatus();
  const int64_t meeting = ++meetings_;
  const std::vector<float*> addresses(arrays.begin(), arrays.end());
  const auto all = [this, addresses, count, act]() -> absl::Status {
    std::vector<float*> found;
    for (size_t i = 0; i < members_.size(); ++i) {
      CAPSTAN_ASSIGN_OR_RETURN(
          std::byte* const here,
          members_[i]->FindDevice(addresses[i], count * static_cast<int64_t>(sizeof(float))));
      found.push_back(reinterpret_cast<float*>(here));
    }
    act(found);
    return absl::OkStatus();
  };
  for (FakeDevice* const member : members_) {
    // Whoever runs it takes it from the others' streams.
    member->Enqueue(stream, {.work =
                                 [this, stream, member, all] {
                                   for (FakeDevice* const other : members_) {
                                     if (other == member) continue;
                                     other->queues_[static_cast<size_t>(stream)].pop_front();
                                     ++other->items_run_;
                                   }
                                   return all();
                                 },
                             .meeting = meeting});
  }
  return absl::OkStatus();
}

absl::Status FakeCollective::Broadcast(Stream stream, absl::Span<float* const> arrays,
                                       int64_t count) {
  return Meet(stream, arrays, count, [count](const std::vector<float*>& found) {
    for (size_t i = 1; i < found.size(); ++i) std::copy_n(found[0], count, found[i]);
  });
}

absl::Status FakeCollective::Reduce(Stream stream, absl::Span<float* const> arrays, int64_t count) {
  return Meet(stream, arrays, count, [count](const std::vector<float*>& found) {
    std::vector<std::vector<float>> copies;  // The others keep their arrays.
    for (const float* array : found) copies.emplace_back(array, array + count);
    TreeSum(copies);
    std::copy(copies[0].begin(), copies[0].end(), found[0]);
  });
}

}  // namespace capstan::kernels
