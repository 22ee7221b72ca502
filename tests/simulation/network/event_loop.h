// EventLoop: virtual time. Runs one event after another, by time and then by order of posting, so
// that the same events always run in the same order.
//
// Thread safety: thread-compatible; everything simulated runs inside one loop on one thread.
// Invariant: Now() never decreases, and no event runs before its time.
#ifndef CAPSTAN_TESTS_SIMULATION_NETWORK_EVENT_LOOP_H_
#define CAPSTAN_TESTS_SIMULATION_NETWORK_EVENT_LOOP_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "common/time/instant.h"

namespace capstan::sim {

class EventLoop {
 public:
  using Event = std::function<void()>;
  using EventId = uint64_t;  // > 0.

  Instant Now() const { return Instant::FromOrigin(absl::Nanoseconds(now_)); }

  // A time that is past means now.
  EventId At(Instant time, Event event);
  EventId After(absl::Duration delay, Event event) { return At(Now() + delay, std::move(event)); }
  void Cancel(EventId id);  // No effect on an event that has run.

  // Runs every event up to `end`; then it is `end`. Returns early, with the time of the last event,
  // once `stop` is true.
  void RunUntil(Instant end, const std::function<bool()>& stop);

  uint64_t events_run() const { return events_run_; }

 private:
  struct Entry {
    int64_t time;
    EventId id;
    Event event;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.time != b.time ? a.time > b.time : a.id > b.id;
    }
  };

  int64_t now_ = 0;  // Nanoseconds since the start.
  EventId last_id_ = 0;
  uint64_t events_run_ = 0;
  std::vector<Entry> heap_;                 // Ordered by std::push_heap with Later.
  absl::flat_hash_set<EventId> cancelled_;  // Never iterated over.
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_NETWORK_EVENT_LOOP_H_
