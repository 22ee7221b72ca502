// DeadlineTimer: one thread that calls a tick function when the next deadline has come.
//
// Thread safety: thread-safe, except that Start and Stop are one thread's.
#ifndef CAPSTAN_SERVER_RPC_DEADLINE_TIMER_H_
#define CAPSTAN_SERVER_RPC_DEADLINE_TIMER_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/time/clock.h"
#include "common/time/instant.h"

namespace capstan::server {

class DeadlineTimer {
 public:
  // Does what is due at `now` and returns when to be called next. Called by the timer's thread
  // only.
  using TickFunction = std::function<Instant(Instant now)>;

  // `clock` outlives the timer and runs with real time.
  DeadlineTimer(const Clock* clock, TickFunction tick);
  ~DeadlineTimer();  // Stops.

  void Start();
  void Stop();  // Returns when no tick is running; none comes later. Idempotent.

  // Ticks at `at`, or earlier if something else is due.
  void Schedule(Instant at);

 private:
  void Run();

  const Clock* const clock_;
  const TickFunction tick_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  Instant next_ ABSL_GUARDED_BY(mutex_) = Instant::InfiniteFuture();
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_RPC_DEADLINE_TIMER_H_
