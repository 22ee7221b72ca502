// Isolation: decides whether the scheduler itself is cut off, rather than that daemons have died.
// If most of the cluster falls silent at once, the fault is the scheduler's. Then no daemon may be
// declared dead, because all of them continue without a scheduler, and come back with their state.
//
//        one was silent for a lease, and most are silent
//   HEARD ------------------------------------------------> ISOLATED
//     ^ <------------- most are heard again ------------------- |
//     | <-- some are heard, the others not for partial_limit ---/   (GIVEN UP: those are dead)
//
// A scheduler that hears no daemon waits without a limit: no daemon would learn of its decisions.
// Called by Membership. Pure. Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_NODES_ISOLATION_H_
#define CAPSTAN_SCHEDULER_CORE_NODES_ISOLATION_H_

#include <optional>

#include "absl/time/time.h"
#include "common/time/instant.h"

namespace capstan::scheduler {

class Isolation {
 public:
  struct Options {
    // The silence of fewer nodes says nothing about the scheduler while others are heard, and the
    // silence of a single node never does.
    int silent_min = 3;
    // How long the majority may be silent while others are heard.
    absl::Duration partial_limit = absl::Minutes(1);
  };
  // Counts of the nodes that have not been declared dead.
  struct Nodes {
    int alive = 0;
    int silent = 0;        // None of their messages came for some time.
    bool expired = false;  // At least one was silent for a whole lease.
  };
  enum class Change { kNone, kBegan, kEnded, kGivenUp };

  explicit Isolation(const Options& options) : options_(options) {}

  Change Observe(const Nodes& nodes, Instant now);
  // True from Observe's kBegan to its kEnded or kGivenUp.
  bool holds() const { return since_.has_value(); }
  Instant since() const { return *since_; }  // REQUIRES: holds().

 private:
  const Options options_;
  std::optional<Instant> since_;
  std::optional<Instant> some_heard_since_;  // Only while isolation holds.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_NODES_ISOLATION_H_
