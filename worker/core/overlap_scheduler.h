// OverlapScheduler: in which order the shards of a table leave and return around training steps,
// and how far the next forward pass may read.
//
// The backward pass ends gradients from the table's end to its beginning, the forward pass reads
// parameters from the beginning to the end. So of the shards that may go the lowest goes first, in
// both directions, and only a window of each is under way: what the next forward pass reads first
// never queues behind what it reads last.
//
//   a shard:  COMPUTING --GradientReady--> READY --push--> PUSHING --Pushed--> PUSHED
//                 ^                          ^-----Lost------/                   |  ^
//                 |                                                         pull v  | Lost
//               BeginStep (all are HERE) <---- HERE <-----Arrived------------- PULLING
//
// Pure: no clock, threads or device; a device says what has happened and does what comes out.
// Thread safety: thread-compatible.
// Invariants: (1) of a step, a shard is pulled after its push was acknowledged;
//             (2) pushes under way are at most window_elements, or one shard; pulls likewise;
//             (3) arrived_end() grows within a step.
#ifndef CAPSTAN_WORKER_CORE_OVERLAP_SCHEDULER_H_
#define CAPSTAN_WORKER_CORE_OVERLAP_SCHEDULER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/types/ids.h"

namespace capstan::worker {

class OverlapScheduler {
 public:
  struct Options {
    // Of pushes under way, and of pulls, >= 1. Twice what a link carries in one round trip keeps it
    // full; more only makes the low shards wait.
    int64_t window_elements = 1 << 20;
  };
  // What is to be sent now, in this order. Indices of shards.
  struct Actions {
    std::vector<int> push;
    std::vector<int> pull;
    friend bool operator==(const Actions&, const Actions&) = default;
  };

  // `shards`: ranges of the table, not empty, each beginning where the one before ends, the first
  // at 0. At first all parameters are here. REQUIRES: the above (asserted).
  OverlapScheduler(std::vector<Range> shards, const Options& options);

  // A backward pass begins.
  // Errors: kFailedPrecondition  parameters of the step before have not arrived; names the first.
  absl::Status BeginStep();

  // Every gradient element from `first` on is final, and no parameter from there on is read by this
  // backward pass any more.
  // Errors: kInvalidArgument  `first` is outside the table or above an earlier one of this step.
  absl::Status GradientReady(int64_t first, Actions* actions);

  // The server has acknowledged the push of `shard`; its new parameters are here.
  // Errors (nothing changes): kInvalidArgument     no such shard.
  //                           kFailedPrecondition  it was not under way; says what it is.
  absl::Status Pushed(int shard, Actions* actions);
  absl::Status Arrived(int shard, Actions* actions);
  // What was under way for `shard` is to be sent again, when its turn comes. Errors: as above.
  absl::Status Lost(int shard, Actions* actions);

  // The forward pass may read the parameters [0, arrived_end()).
  int64_t arrived_end() const;
  bool all_here() const { return arrived_end() == elements(); }
  int64_t elements() const { return shards_.empty() ? 0 : shards_.back().range.end; }

 private:
  enum class State { kComputing, kReady, kPushing, kPushed, kPulling, kHere };
  struct Shard {
    Range range;
    State state = State::kHere;
  };

  absl::Status Move(int shard, State from, State to, Actions* actions);
  // Sends the lowest shards in state `from` until the window is full.
  void Fill(State from, State to, std::vector<int>* sent);
  static const char* Name(State state);

  const Options options_;
  std::vector<Shard> shards_;
  int64_t final_from_ = 0;  // Gradients of this step are final from here on.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CORE_OVERLAP_SCHEDULER_H_
