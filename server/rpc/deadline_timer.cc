#include "server/rpc/deadline_timer.h"

#include <utility>

namespace capstan::server {

DeadlineTimer::DeadlineTimer(const Clock* clock, TickFunction tick)
    : clock_(clock), tick_(std::move(tick)) {}

DeadlineTimer::~DeadlineTimer() { Stop(); }

void DeadlineTimer::Start() {
  thread_ = std::thread([this] { Run(); });
}

void DeadlineTimer::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

void DeadlineTimer::Schedule(Instant at) {
  absl::MutexLock lock(&mutex_);
  if (at >= next_) return;
  next_ = at;
  changed_.Signal();
}

void DeadlineTimer::Run() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      while (!stopping_ && clock_->Now() < next_) {
        changed_.WaitWithTimeout(&mutex_, next_ - clock_->Now());
      }
      if (stopping_) return;
      next_ = Instant::InfiniteFuture();
    }
    Schedule(tick_(clock_->Now()));
  }
}

}  // namespace capstan::server
