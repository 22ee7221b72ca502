// History: what a checker knew when each checkpoint was taken, so that it goes back with the job.
//
// A checkpoint is captured while the job is quiet: what is known when that phase begins is what the
// checkpoint holds. A job that goes back has new incarnations; what is still heard of older ones
// counts for nothing.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_WORLD_HISTORY_H_
#define CAPSTAN_TESTS_SIMULATION_WORLD_HISTORY_H_

#include <algorithm>
#include <map>
#include <string>
#include <variant>

#include "scheduler/core/messages/events.h"
#include "tests/simulation/world/checker.h"

namespace capstan::sim {

// State: what is known; its default is what is known in the beginning.
template <typename State>
class History {
 public:
  // Follows the job; changes `present` when it goes back.
  void Happened(const scheduler::Event& event, State& present) {
    if (const auto* placed = std::get_if<scheduler::TaskPlaced>(&event)) {
      newest_ = std::max(newest_, placed->task.incarnation);
    } else if (const auto* phase = std::get_if<scheduler::PhaseStarted>(&event)) {
      if (phase->phase == scheduler::JobPhase::kCheckpointing) captured_ = present;
    } else if (const auto* ended = std::get_if<scheduler::CheckpointEnded>(&event)) {
      if (ended->why.empty()) complete_[ended->folder] = captured_;
    } else if (const auto* back = std::get_if<scheduler::WentBack>(&event)) {
      present = back->folder.empty() ? State() : complete_.at(back->folder);
      old_ = newest_;
    }
  }
  // Ended when the job went back.
  bool IsOld(const TaskKey& task_key) const { return task_key.incarnation <= old_; }

 private:
  State captured_;
  std::map<std::string, State> complete_;  // Keyed by folder.
  Incarnation newest_;
  Incarnation old_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_WORLD_HISTORY_H_
