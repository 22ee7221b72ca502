#include "tests/simulation/network/process.h"

#include <utility>

namespace capstan::sim {

Instant HostClock::Now() const {
  if (frozen()) return frozen_at_;
  return Instant::FromOrigin(offset_ + loop_->Now().SinceOrigin() * rate_);
}

Instant HostClock::ToVirtual(Instant local) const {
  if (frozen() && local <= frozen_at_) return loop_->Now();
  // Rounded up, so that the clock shows at least `local` when the event runs.
  return Instant::FromOrigin((local.SinceOrigin() - offset_) / rate_ + absl::Nanoseconds(2));
}

void HostClock::Jump(absl::Duration forward) {
  offset_ += forward;
  frozen_at_ = frozen_at_ + forward;
}

void HostClock::Freeze(absl::Duration time) {
  if (frozen()) return;
  frozen_at_ = Now();
  thaw_ = loop_->Now() + time;
  offset_ -= time * rate_;
}

Process::Process(std::string name, EventLoop* loop, HostClock* clock)
    : name_(std::move(name)), loop_(loop), clock_(clock) {}

Process::TimerId Process::At(Instant local, std::function<void()> event) {
  const TimerId id = ++last_timer_;
  if (local == Instant::InfiniteFuture()) return id;
  timers_[{local, id}] = std::move(event);
  due_[id] = local;
  if (armed_ == 0 || local < armed_for_) Arm();
  return id;
}

void Process::CancelTimer(TimerId id) {
  const auto it = due_.find(id);
  if (it == due_.end()) return;
  timers_.erase({it->second, id});
  due_.erase(it);  // The armed event may come for nothing.
}

void Process::Arm() {
  loop_->Cancel(armed_);
  armed_ = 0;
  if (!alive_ || paused_ || timers_.empty()) return;
  armed_for_ = timers_.begin()->first.first;
  armed_ = loop_->At(clock_->ToVirtual(armed_for_), [this] {
    armed_ = 0;
    RunDue();
  });
}

void Process::RunDue() {
  const uint64_t incarnation = incarnation_;
  while (alive_ && !paused_ && incarnation == incarnation_ && !timers_.empty()) {
    const auto first = timers_.begin();
    if (first->first.first > Now()) break;
    const std::function<void()> event = std::move(first->second);
    due_.erase(first->first.second);
    timers_.erase(first);
    event();
  }
  if (incarnation == incarnation_ && armed_ == 0) Arm();
}

void Process::Arrive(std::function<void()> event) {
  if (!alive_) return;
  if (paused_) {
    inbox_.push_back(std::move(event));
  } else {
    event();
  }
}

void Process::Start() {
  started_ = loop_->Now();
  alive_ = true;
  ++incarnation_;
}

void Process::Kill() {
  if (!alive_) return;
  alive_ = false;
  paused_ = false;
  ++incarnation_;
  timers_.clear();
  due_.clear();
  inbox_.clear();
  loop_->Cancel(armed_);
  armed_ = 0;
  if (on_kill_) on_kill_();
}

void Process::Pause() {
  if (!alive_ || paused_) return;
  paused_ = true;
  loop_->Cancel(armed_);
  armed_ = 0;
}

void Process::Resume() {
  if (!alive_ || !paused_) return;
  paused_ = false;
  const uint64_t incarnation = incarnation_;
  std::vector<std::function<void()>> inbox;
  inbox.swap(inbox_);
  for (size_t i = 0; i < inbox.size(); ++i) {
    if (incarnation != incarnation_) return;
    if (paused_) {  // Again, by what has just run.
      inbox_.insert(inbox_.begin(), inbox.begin() + static_cast<ptrdiff_t>(i), inbox.end());
      return;
    }
    inbox[i]();
  }
  if (incarnation == incarnation_ && armed_ == 0) Arm();
}

}  // namespace capstan::sim
