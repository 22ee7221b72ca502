#include "scheduler/core/checkpoints/checkpoint_clock.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace capstan::scheduler {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

CheckpointClock::CheckpointClock(const JobPlan& plan)
    : job_(plan.id),
      every_steps_(plan.checkpoint_iterations),
      every_(plan.checkpoint_interval),
      due_steps_(kNever) {}

void CheckpointClock::Start(int64_t steps, Instant now) {
  due_steps_ = every_steps_ > 0 ? steps + std::min(every_steps_, kNever - steps) : kNever;
  due_at_ = every_ > absl::ZeroDuration() ? now + every_ : Instant::InfiniteFuture();
}

void CheckpointClock::Ask() {
  asked_ = true;
  ++changes_;
}

absl::Status CheckpointClock::AskSnapshot(uint64_t reader) {
  if (std::find(readers_.begin(), readers_.end(), reader) != readers_.end()) {
    return absl::OkStatus();
  }
  if (readers_.size() >= kReadersMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        readers_.size(), " readers wait for the next snapshot of ", job_, "; try again"));
  }
  readers_.push_back(reader);
  ++changes_;
  return absl::OkStatus();
}

bool CheckpointClock::IsCheckpointDue(int64_t steps, Instant now) const {
  return asked_ || steps >= due_steps_ || now >= due_at_;
}

void CheckpointClock::Begun(int64_t steps, Instant now) {
  Start(steps, now);
  asked_ = false;
}

std::vector<uint64_t> CheckpointClock::TakeReaders() { return std::exchange(readers_, {}); }

}  // namespace capstan::scheduler
