#include "tests/simulation/network/event_loop.h"

#include <algorithm>
#include <utility>

namespace capstan::sim {

EventLoop::EventId EventLoop::At(Instant time, Event event) {
  const int64_t at = std::max(now_, absl::ToInt64Nanoseconds(time.SinceOrigin()));
  heap_.push_back({at, ++last_id_, std::move(event)});
  std::push_heap(heap_.begin(), heap_.end(), Later());
  return last_id_;
}

void EventLoop::Cancel(EventId id) {
  if (id != 0) cancelled_.insert(id);
}

void EventLoop::RunUntil(Instant end, const std::function<bool()>& stop) {
  const int64_t until = absl::ToInt64Nanoseconds(end.SinceOrigin());
  while (!heap_.empty() && heap_.front().time <= until) {
    std::pop_heap(heap_.begin(), heap_.end(), Later());
    Entry entry = std::move(heap_.back());
    heap_.pop_back();
    if (cancelled_.erase(entry.id) > 0) continue;
    now_ = entry.time;
    ++events_run_;
    entry.event();
    if (stop()) return;
  }
  now_ = std::max(now_, until);
}

}  // namespace capstan::sim
