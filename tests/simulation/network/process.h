// Process: a simulated operating-system process: its clock, its timers, and what may happen to it.
//
//             Pause            Kill
//   RUNNING <-------> PAUSED   RUNNING, PAUSED ------> DEAD --Start--> RUNNING (a new incarnation)
//             Resume
//
// Timers of an incarnation, and messages that wait for it, die with it. While a process is paused
// its timers do not fire and arriving messages wait; both are handled late, when it is resumed. Its
// clock goes on, up to 5 % fast or slow, and may jump forward, or stand still for a while, and all
// timers with it.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_NETWORK_PROCESS_H_
#define CAPSTAN_TESTS_SIMULATION_NETWORK_PROCESS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/time/clock.h"
#include "common/time/instant.h"
#include "tests/simulation/network/event_loop.h"

namespace capstan::sim {

// The clock of a host, shared by its processes.
class HostClock final : public Clock {
 public:
  // `rate`: seconds of this clock in a second of virtual time. The loop outlives the clock.
  HostClock(const EventLoop* loop, double rate, absl::Duration offset)
      : loop_(loop), rate_(rate), offset_(offset) {}

  Instant Now() const override;
  Instant ToVirtual(Instant local) const;  // When this clock will show `local`, unless it jumps.
  void Jump(absl::Duration forward);
  // Stands still for so long in virtual time, then goes on from where it stood.
  void Freeze(absl::Duration time);

 private:
  bool frozen() const { return loop_->Now() < thaw_; }

  const EventLoop* const loop_;
  const double rate_;
  absl::Duration offset_;
  Instant thaw_;       // Virtual time.
  Instant frozen_at_;  // The time that it shows until then.
};

class Process {
 public:
  using TimerId = uint64_t;  // > 0.

  // `loop` and `clock` outlive the process, which outlives the loop's events.
  Process(std::string name, EventLoop* loop, HostClock* clock);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const std::string& name() const { return name_; }
  EventLoop& loop() { return *loop_; }
  const Clock& clock() const { return *clock_; }
  Instant Now() const { return clock_->Now(); }

  bool alive() const { return alive_; }
  bool paused() const { return paused_; }
  uint64_t incarnation() const { return incarnation_; }  // Grows with every start.
  Instant started() const { return started_; }           // This incarnation, in virtual time.

  // Runs `event` when the process's clock shows `local`, in this incarnation.
  TimerId At(Instant local, std::function<void()> event);
  TimerId After(absl::Duration delay, std::function<void()> event) {
    return At(Now() + delay, std::move(event));
  }
  void CancelTimer(TimerId id);

  // Something arrives from outside: runs now, or on resuming, unless this incarnation ends before.
  void Arrive(std::function<void()> event);

  void Start();  // REQUIRES: not alive.
  void Kill();
  void Pause();
  void Resume();
  void ClockJumped() { Arm(); }  // The clock was moved: timers are due earlier.

  // Called by Kill, after the incarnation has ended, to drop what it held and to break its
  // connections.
  void set_on_kill(std::function<void()> on_kill) { on_kill_ = std::move(on_kill); }

 private:
  void Arm();
  void RunDue();

  const std::string name_;
  EventLoop* const loop_;
  HostClock* const clock_;
  Instant started_;
  bool alive_ = false;
  bool paused_ = false;
  uint64_t incarnation_ = 0;
  TimerId last_timer_ = 0;
  std::map<std::pair<Instant, TimerId>, std::function<void()>> timers_;
  std::map<TimerId, Instant> due_;
  std::vector<std::function<void()>> inbox_;  // Messages that arrived while it was paused.
  EventLoop::EventId armed_ = 0;
  Instant armed_for_;
  std::function<void()> on_kill_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_NETWORK_PROCESS_H_
