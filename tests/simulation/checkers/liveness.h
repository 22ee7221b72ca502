// Liveness: once the world has healed a job ends in time, and it ends as its options allow.
//
// It must succeed unless something that was done to the world is named as a reason to fail:
// the primary of a shard and every replica of it that was in sync have died, or lost their disks,
// once the job had begun to train, without a checkpoint, and without a log or with a log on a disk
// that suffered; or all servers have lost their disks (SERVER_LOST). What happens to others' copies
// is no reason: of each job its own servers count, and of their disks what was done to them since
// they have had copies of it.
// A job may have to wait for the places of others, those that were submitted before it and those
// that have places already: its time begins when the last of them has ended, at the earliest when
// the world has healed.
// A process that lives is not declared dead while nothing keeps it from being heard, nor by a
// scheduler that is cut off from everybody. Its name is not given to another that has a copy of its
// folder.
// A job whose scheduler goes on from an older copy of its store may end for that, by name, or for
// want of a checkpoint that was removed since; else it is judged like any other.
// No task gives up what it waits for, or a call, but for a server that its daemon has a dead link
// to, and none may be taken for hung because its work takes long. Once a task has written the model
// nothing ends the job or takes it back.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_CHECKERS_LIVENESS_H_
#define CAPSTAN_TESTS_SIMULATION_CHECKERS_LIVENESS_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "scheduler/core/job/views.h"
#include "scheduler/core/messages/events.h"
#include "tests/simulation/world/checker.h"
#include "tests/simulation/world/world.h"

namespace capstan::sim {

class Liveness final : public Checker {
 public:
  Liveness(const World* world, const JobWorld* job) : world_(world), job_(job) {}  // Outlive it.

  void Happened(const scheduler::Event& event) override;
  void RoutingSent(const scheduler::Routing& routing) override;
  void RoutingWritten(const scheduler::Routing& routing) override { RoutingSent(routing); }
  void Exported(const TaskKey& task_key, const std::vector<std::vector<float>>& tables,
                const std::map<TableId, Version>& versions) override;
  void ModelIsWhole() override { known_.whole = true; }
  void SchedulerCutOff(bool cut) override;
  void StoreCopied() override { copied_ = known_; }
  // Decisions since the copy count as never made.
  void StorePutBack() override {
    ended_before_ = ended_before_ || known_.ended;
    known_ = copied_;
  }

  bool started() const { return known_.started; }  // It has got its places.
  bool ended() const { return known_.ended; }
  // Whether it failed because the scheduler goes on from an older copy of its store.
  bool EndedForOlderStore(const std::optional<scheduler::JobView>& job) const;
  // The time is over. `job`: as the scheduler sees it.
  void CheckEnd(const std::optional<scheduler::JobView>& job);

 private:
  // A scheduler notices that most are silent within this time.
  static constexpr absl::Duration kNoticeLimit = absl::Seconds(2);
  // After this time a fault of a process is no reason any more to take it for dead: a lease, and
  // the time to find the scheduler again.
  static constexpr absl::Duration kForgetLimit = absl::Seconds(7);
  // Shorter than the silence after which the scheduler takes a node for unheard.
  static constexpr absl::Duration kHeardLimit = absl::Milliseconds(400);

  struct Joined {
    Instant at;  // Virtual time.
    std::string address;
  };

  void CheckDeath(const scheduler::NodeDied& died);
  bool HasDeadLink(const scheduler::TaskDied& died) const;
  bool MayFail(const scheduler::Failure& failure) const;
  bool KilledWithAll() const;
  // The primary and every replica in sync of some shard have died.
  bool LostShard() const;
  // The disk of a server was lost, or failed, since that one has had copies of the job.
  bool DiskSuffered() const;

  const World* const world_;
  const JobWorld* const job_;
  std::optional<Instant> cut_since_;  // Nothing of anybody can reach the scheduler from then on.
  std::set<std::pair<NodeId, Incarnation>> dead_;
  std::set<NodeId> alive_;           // Nodes that the scheduler has called alive.
  std::map<NodeId, Joined> joined_;  // Last.
  Instant trained_at_;               // When it first began to.
  bool ended_before_ = false;        // The store that was put back did not know the job's end.
  std::set<NodeId> failed_;          // Servers that failed for the job, because of their disks.
  std::map<NodeId, Instant> held_;   // Since when a server has had copies of the job.
  struct Known {
    scheduler::Routing routing;  // The newest that was sent, or written by a scheduler that ended.
    bool started = false;        // The job has its places.
    bool trained = false;        // Has begun to.
    bool checkpointed = false;   // One is complete.
    bool whole = false;          // The model is.
    bool ended = false;          // The job has, as the scheduler has told.
  };
  Known known_;
  Known copied_;  // The state when the scheduler's store was copied.
  bool exported_ = false;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_CHECKERS_LIVENESS_H_
