#include "common/net/data/call_deadlines.h"

namespace capstan {

void CallDeadlines::Add(CallId call, Instant now, absl::Duration timeout) {
  const Times times{.deadline = now + timeout, .timeout = timeout};
  calls_[call] = times;
  order_.emplace(times.deadline, call);
}

void CallDeadlines::Remove(CallId call) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  order_.erase({found->second.deadline, call});
  calls_.erase(found);
}

void CallDeadlines::Moved(Instant now, int64_t bytes) {
  if (bytes <= bytes_) return;
  bytes_ = bytes;
  moved_at_ = now;
}

std::vector<CallDeadlines::CallId> CallDeadlines::Overdue(Instant now) {
  std::vector<CallId> overdue;
  for (auto it = order_.begin(); it != order_.end() && it->first <= now;) {
    const CallId call = it->second;
    Times& times = calls_.at(call);
    const Instant until = moved_at_ + times.timeout;
    if (until <= now) {
      overdue.push_back(call);
      ++it;
      continue;
    }
    it = order_.erase(it);
    times.deadline = until;
    order_.emplace(until, call);
  }
  return overdue;
}

Instant CallDeadlines::NextAfter(Instant now) const {
  const auto next = order_.upper_bound({now, ~CallId{0}});
  return next == order_.end() ? Instant::InfiniteFuture() : next->first;
}

}  // namespace capstan
