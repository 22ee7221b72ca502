#include "server/agent/log_recovery.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "common/observability/log.h"

namespace capstan::server {

LogRecovery::LogRecovery(Options options)
    : options_(std::move(options)), pause_(options_.pause_min) {}

LogRecovery::~LogRecovery() { Stop(); }

void LogRecovery::Start() { thread_ = std::thread(&LogRecovery::Run, this); }

void LogRecovery::Stop() {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void LogRecovery::LogFailed(const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return;
  const absl::MutexLock lock(&mutex_);
  watching_ = true;
}

void LogRecovery::Run() {
  while (true) {
    {
      const absl::MutexLock lock(&mutex_);
      const auto woken = [this]()
                             ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return watching_ || stopping_; };
      mutex_.Await(absl::Condition(&woken));
      if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), pause_)) return;
      watching_ = false;  // A failure from now on starts a new watch.
    }
    if (Watch()) continue;
    const absl::MutexLock lock(&mutex_);
    watching_ = true;
  }
}

bool LogRecovery::Watch() {
  const Need need = options_.need();
  if (need == Need::kNone) return true;
  if (!options_.probe().ok()) return false;
  if (need == Need::kLater) {
    if (!std::exchange(told_later_, true)) {
      LogWarning({},
                 "the disk of the logs has room again; jobs that live in this process alone keep "
                 "it from beginning anew: it does once they have ended");
    }
    return false;
  }
  told_later_ = false;
  const absl::Time now = absl::Now();
  const bool soon = now - begun_anew_ < options_.pause_max;
  pause_ = soon ? std::min(2 * pause_, options_.pause_max) : options_.pause_min;
  begun_anew_ = now;
  LogWarning({}, "the disk of the logs has room again: this server begins a new incarnation");
  options_.begin_anew();
  return true;
}

}  // namespace capstan::server
