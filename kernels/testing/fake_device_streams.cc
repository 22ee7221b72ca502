// The streams, events, waits and graphs of FakeDevice.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/testing/fake_collective.h"
#include "kernels/testing/fake_device.h"

namespace capstan::kernels {

struct FakeDevice::Event : public DeviceEvent {
  explicit Event(EventUse the_use) : use(the_use) {}
  const EventUse use;
  const std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

class FakeGraph : public DeviceGraph {
 public:
  FakeGraph(FakeDevice& device, std::vector<FakeDevice::Work> work)
      : device_(device), work_(std::move(work)) {}
  absl::Status Launch() override {
    ++device_.counts_.launches;
    for (const FakeDevice::Work& work : work_) {
      CAPSTAN_RETURN_IF_ERROR(device_.EnqueueCompute(work));
    }
    return absl::OkStatus();
  }

 private:
  FakeDevice& device_;
  const std::vector<FakeDevice::Work> work_;
};

absl::Status FakeDevice::EnqueueCompute(Work work) {
  if (capturing_) {
    captured_.push_back(std::move(work));
  } else {
    Enqueue(Stream::kCompute, {.work = std::move(work)});
  }
  return absl::OkStatus();
}

void FakeDevice::Enqueue(Stream stream, Item item) {
  queues_[static_cast<size_t>(stream)].push_back(std::move(item));
}

// ---------------------------------------------------------------- events and waits

absl::StatusOr<std::unique_ptr<DeviceEvent>> FakeDevice::MakeEvent(EventUse use) {
  return std::unique_ptr<DeviceEvent>(std::make_unique<Event>(use));
}

absl::Status FakeDevice::Record(DeviceEvent& event, Stream stream) {
  const std::lock_guard lock(mutex_);
  if (capturing_) return absl::FailedPreconditionError("an event is not recorded in a graph");
  const std::shared_ptr<EventState> state = static_cast<Event&>(event).state;
  const int64_t number = ++state->recorded;
  Enqueue(stream, {.work = [this, state, number] {
            state->reached = number;
            state->reached_at = items_run_;
            return absl::OkStatus();
          }});
  return absl::OkStatus();
}

absl::Status FakeDevice::Wait(Stream stream, DeviceEvent& event) {
  const std::lock_guard lock(mutex_);
  if (capturing_) return absl::FailedPreconditionError("a wait is not recorded");
  if (Forgotten(Call::kWait)) return absl::OkStatus();
  const std::shared_ptr<EventState> state = static_cast<Event&>(event).state;
  if (state->recorded == 0) return absl::FailedPreconditionError("the event was never recorded");
  Enqueue(stream,
          {.work = [] { return absl::OkStatus(); }, .after = state, .times = state->recorded});
  return absl::OkStatus();
}

absl::Status FakeDevice::Await(DeviceEvent& event) {
  const std::lock_guard lock(mutex_);
  if (capturing_) return absl::FailedPreconditionError("cannot wait while recording");
  if (Forgotten(Call::kAwait)) return absl::OkStatus();
  const std::shared_ptr<EventState> state = static_cast<Event&>(event).state;
  if (state->recorded == 0) return absl::FailedPreconditionError("the event was never recorded");
  return RunUntil([state, number = state->recorded] { return state->reached >= number; });
}

absl::StatusOr<double> FakeDevice::SecondsBetween(DeviceEvent& from, DeviceEvent& to) {
  const auto& first = static_cast<Event&>(from);
  const auto& second = static_cast<Event&>(to);
  for (const Event* event : {&first, &second}) {
    if (event->use == EventUse::kTiming && event->state->recorded > 0 &&
        event->state->reached == event->state->recorded) {
      continue;
    }
    return absl::FailedPreconditionError("an event has no time, or has not come");
  }
  return 1e-6 * static_cast<double>(second.state->reached_at - first.state->reached_at);
}

absl::Status FakeDevice::Synchronize() {
  if (capturing_) return absl::FailedPreconditionError("cannot wait while recording");
  return RunUntil([this] {
    return std::all_of(queues_.begin(), queues_.end(), [](const auto& q) { return q.empty(); });
  });
}

void FakeDevice::Forget(Call call, int64_t number) {
  forget_ = call;
  forget_number_ = number;
  calls_counted_ = 0;
}

bool FakeDevice::Forgotten(Call call) {
  return call == forget_ && calls_counted_++ == forget_number_;
}

absl::Status FakeDevice::RunUntil(const std::function<bool()>& done) {
  while (error_.ok() && !done()) {
    if (OthersAreFirst() && RunOneOfOthers()) continue;
    if (!RunOne() && !RunOneOfOthers()) return WhyNothingRuns();
  }
  return error_;
}

bool FakeDevice::OthersAreFirst() {
  if (collective_ == nullptr) return false;
  // The three ways: never, always, and drawn anew each time.
  constexpr uint64_t kWays = 3;
  const uint64_t way = options_.seed % kWays;
  return way == 1 || (way == 2 && PhiloxWord(options_.seed, draws_++) % 2 == 0);
}

bool FakeDevice::RunOne() {
  const int stream = PickStream();
  if (stream < 0) return false;
  std::deque<Item>& queue = queues_[static_cast<size_t>(stream)];
  const Item item = std::move(queue.front());
  queue.pop_front();
  ++items_run_;
  error_ = item.work();
  if (!error_.ok()) {
    for (std::deque<Item>& each : queues_) each.clear();
  }
  return true;
}

bool FakeDevice::RunOneOfOthers() {
  if (collective_ == nullptr) return false;
  const std::vector<FakeDevice*>& members = collective_->members();
  const size_t first = PhiloxWord(options_.seed, draws_++) % members.size();
  for (size_t i = 0; i < members.size(); ++i) {
    FakeDevice& other = *members[(first + i) % members.size()];
    if (&other != this && other.error_.ok() && other.RunOne()) return true;
  }
  return false;
}

absl::Status FakeDevice::WhyNothingRuns() const {
  if (collective_ != nullptr) {
    for (const FakeDevice* other : collective_->members()) {
      CAPSTAN_RETURN_IF_ERROR(
          Annotate(other->error_, absl::StrCat("while it waits for ", other->Label())));
    }
  }
  return absl::InternalError("streams wait for each other");
}

int FakeDevice::PickStream() {
  constexpr std::array<std::array<int, kStreamCount>, kFakeDeviceOrders> kOrders = {
      {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}};
  const uint64_t seed = options_.seed;
  const uint64_t order =
      seed < kFakeDeviceOrders ? seed : PhiloxWord(seed, draws_++) % kFakeDeviceOrders;
  for (const int stream : kOrders[order]) {
    const std::deque<Item>& queue = queues_[static_cast<size_t>(stream)];
    if (queue.empty()) continue;
    const Item& first = queue.front();
    if (first.after != nullptr && first.after->reached < first.times) continue;
    if (first.meeting == 0 || collective_->AllHere(stream, first.meeting)) return stream;
  }
  return -1;
}

// ---------------------------------------------------------------- graphs

absl::Status FakeDevice::BeginCapture() {
  if (capturing_) return absl::FailedPreconditionError("already recording");
  capturing_ = true;
  captured_.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> FakeDevice::EndCapture() {
  if (!capturing_) return absl::FailedPreconditionError("nothing is being recorded");
  capturing_ = false;
  return std::unique_ptr<DeviceGraph>(std::make_unique<FakeGraph>(*this, std::move(captured_)));
}

}  // namespace capstan::kernels
