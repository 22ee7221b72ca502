#include "kernels/testing/fake_collective.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

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
    for (auto& queue : member->queues_) queue.clear();  // They are empty unless a member is lost.
    member->collective_ = nullptr;
  }
}

bool FakeCollective::AllHere(int stream, int64_t meeting) const {
  return std::all_of(members_.begin(), members_.end(), [&](const FakeDevice* member) {
    const auto& queue = member->queues_[static_cast<size_t>(stream)];
    return member->error_.ok() && !queue.empty() && queue.front().meeting == meeting;
  });
}

absl::Status FakeCollective::Meet(CollectiveKind kind, Stream stream,
                                  absl::Span<float* const> arrays, int64_t count) {
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
  const auto all = [this, kind, addresses, count] { return Exchange(kind, addresses, count); };
  for (FakeDevice* const member : members_) {
    // The member that runs the item removes it from the others' streams.
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

absl::Status FakeCollective::Exchange(CollectiveKind kind, const std::vector<float*>& addresses,
                                      int64_t count) {
  HostCollective call(kind, members_.size(), count);
  const int64_t elements = std::max(call.sent_count(), call.received_count());
  std::vector<float*> arrays;
  for (size_t i = 0; i < members_.size(); ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(
        std::byte* const here,
        members_[i]->FindDevice(addresses[i], elements * static_cast<int64_t>(sizeof(float))));
    arrays.push_back(reinterpret_cast<float*>(here));
    const int64_t part = kind == CollectiveKind::kAllGather ? static_cast<int64_t>(i) * count : 0;
    if (call.Sends(i)) call.Send(i, arrays[i] + part);
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!call.Receives(i)) continue;
    const bool scatters = kind == CollectiveKind::kReduceScatter;
    // The other parts of its array are undefined.
    if (scatters) std::fill_n(arrays[i], elements, std::numeric_limits<float>::quiet_NaN());
    call.Receive(i, arrays[i] + (scatters ? static_cast<int64_t>(i) * count : 0));
  }
  return absl::OkStatus();
}

}  // namespace capstan::kernels
