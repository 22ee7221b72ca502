// Isolation: tells a scheduler that is cut off from daemons that die. When most of the cluster
// falls silent at once the fault is the observer's: then nobody may be declared dead, because all
// of it goes on without a scheduler, and comes back with what it holds.
//
//        one was silent for a lease, and most are silent
//   HEARD ------------------------------------------------> ISOLATED
//     ^ <------------- most are heard again ------------------- |
//     | <-- some are heard, the others not for partial_limit ---/   (GIVEN UP: those are dead)
//
// A scheduler that hears nobody waits without a limit: nobody would hear of what it decided.
// Pure. Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_NODES_ISOLATION_H_
#define CAPSTAN_SCHEDULER_CORE_NODES_ISOLATION_H_

#include <optional>

#include "absl/time/time.h"
#include "common/time/instant.h"

namespace capstan::scheduler {

class Isolation {
 public:
  struct Options {
    // The silence of fewer at once says nothing about the observer while others are heard, and that
    // of a single node never does.
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
  // From Observe's kBegan to its kEnded or kGivenUp.
  bool holds() const { return since_.has_value(); }
  Instant since() const { return *since_; }  // REQUIRES: holds().

 private:
  const Options options_;
  std::optional<Instant> since_;
  std::optional<Instant> some_heard_since_;  // While it holds.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_NODES_ISOLATION_H_
