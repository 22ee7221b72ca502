// QuietMoment: while an SSP or ASP job stands for a checkpoint or a snapshot, no task that lives
// has a push under way, or begins one: what the servers then copy is what the tasks had reported.
// Nor does a server record a push of a task that has died: a copy of one shard would be without it,
// and a later copy of another shard with it. BSP needs no such moment: a slot that is pushed twice
// changes nothing.
//
// A scheduler that dies may have let the tasks stand without having it in its store: nothing is
// expected until the next moment. Incarnations that a store that was put back does not know end
// without an event when the job goes back. Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_CHECKERS_QUIET_MOMENT_H_
#define CAPSTAN_TESTS_SIMULATION_CHECKERS_QUIET_MOMENT_H_

#include <cstdint>
#include <set>
#include <string>
#include <tuple>

#include "tests/simulation/world/checker.h"
#include "tests/simulation/world/history.h"

namespace capstan::sim {

class QuietMoment final : public Checker {
 public:
  // `at_once`: servers answer a push when they record it, since nobody else has to have it before.
  explicit QuietMoment(bool at_once) : at_once_(at_once) {}

  void PushAnswered(const std::string& server, const v1::PushRequest& request,
                    const v1::PushResponse& response) override;
  void PushSent(const ShardPush& push) override;
  void PushAcknowledged(const TaskKey& task_key, ShardKey shard, const Batch& batch,
                        Version version) override;
  void Happened(const scheduler::Event& event) override;
  void SchedulerRestarted() override { stands_ = false; }

 private:
  using Push = std::tuple<TaskKey, ShardKey, Epoch, int64_t>;  // The last: its first position.

  void ExpectDead(const Push& push);

  struct Nothing {};

  const bool at_once_;
  History<Nothing> history_;  // A task of a course that was left pushes to servers that were, too.
  bool stands_ = false;
  std::set<Push> under_way_;
  std::set<TaskKey> dead_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_CHECKERS_QUIET_MOMENT_H_
