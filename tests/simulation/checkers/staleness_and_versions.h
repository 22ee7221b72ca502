// StalenessAndVersions: no SSP read is staler than the bound, and no reader sees a shard go back.
//
// Staleness: when a server's answer to a pull at iteration c leaves, every other task that holds
// work has itself finished iteration c - 1 - bound, or was started beyond it. The checker knows how
// far a task is from its pushes and its assignment, not from what servers count.
// An early pull may miss as many of its own worker's pushes as of any other's.
// Rows that a task has kept: what it uses is what it pulled last, and what holds for an answer
// holds for them, with how far others had come when that answer left. ASP: their age is not beyond
// what the job allows.
// Versions: to one incarnation of one task, a shard's version never decreases, and is at least the
// one with which a server has acknowledged a push of that incarnation (SSP, ASP without early
// pulls). A pull that is sent after anybody's push was acknowledged sees that push.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_CHECKERS_STALENESS_AND_VERSIONS_H_
#define CAPSTAN_TESTS_SIMULATION_CHECKERS_STALENESS_AND_VERSIONS_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/world/checker.h"
#include "tests/simulation/world/history.h"
#include "tests/simulation/world/job_options.h"

namespace capstan::sim {

class StalenessAndVersions final : public Checker {
 public:
  explicit StalenessAndVersions(const JobOptions& job) : job_(job) {}

  void PushSent(const ShardPush& push) override;
  void PushAcknowledged(const TaskKey& task_key, ShardKey shard, const Batch& batch,
                        Version version) override;
  void PullSent(const TaskKey& task_key, ShardKey shard, Iteration iteration) override;
  void ReadDone(const ShardRead& read) override;
  void RowsUsed(const RowsUse& use) override;
  void SnapshotShown(ShardKey shard, Version version) override;
  void Happened(const scheduler::Event& event) override { history_.Happened(event, acknowledged_); }
  void WorkChanged(const TaskKey& task_key, Iteration start, int leases) override;
  void MembershipSent(const JobId& job, const scheduler::JobMembership& membership) override;
  void PullAnswered(const std::string& server, const v1::PullRequest& request,
                    const v1::PullResponse& response) override;

 private:
  struct Work {
    Iteration start;
    int leases = 0;
  };

  void CheckSees(Version needed, const TaskKey& task_key, const ShardKey& shard, Version version);
  using Pushed = std::map<TaskKey, Iteration>;  // The next one that each is to push.
  // `what`: reads at `iteration` what has the pushes in `pushed`.
  void CheckStaleness(const std::string& what, const TaskKey& reader, int64_t iteration,
                      const ShardKey& shard, const Pushed& pushed);

  const JobOptions job_;
  scheduler::JobMembership membership_;  // The newest sent.
  std::map<TaskKey, Work> work_;
  std::map<ShardKey, Pushed> pushed_;
  std::map<std::pair<TaskKey, ShardKey>, Pushed> answered_;  // When an answer left last.
  struct Kept {
    Iteration iteration;  // The iteration that pulled it.
    Pushed pushed;
    std::vector<float> row;
  };
  std::map<std::pair<TaskKey, int64_t>, Kept> kept_;  // Keyed by place.
  std::map<std::pair<TaskKey, ShardKey>, Version> seen_;
  // The newest pull, and the version that was acknowledged to anybody when it was first sent. The
  // tasks that were at work then, for earlier pulls as well: an answer may leave long after its
  // pull was given up.
  struct Asked {
    Iteration iteration{-1};
    Version acknowledged;
    std::map<Iteration, std::set<TaskKey>> working;
  };
  std::map<std::pair<TaskKey, ShardKey>, Asked> asked_;
  using Versions = std::map<ShardKey, Version>;
  Versions acknowledged_;  // The newest to anybody...
  History<Versions> history_;
  // ...when a pull was sent last.
  std::map<std::pair<TaskKey, ShardKey>, Version> at_least_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_CHECKERS_STALENESS_AND_VERSIONS_H_
