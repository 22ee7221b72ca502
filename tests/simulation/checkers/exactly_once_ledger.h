// ExactlyOnceLedger: every acknowledged push is in the final model once; every other push that was
// sent is in it once or not at all.
//
// Gradients are whole numbers and the rule subtracts them, so that initial - final is the exact sum
// of the pushes that were applied. The ledger knows which pushes were acknowledged; of those that
// were sent and never acknowledged (their worker died) it looks for a set that explains the rest.
// A push is reduced to one number, a random linear form of its gradient modulo 2^64: a sum of
// gradients is then a sum of numbers, and a wrong explanation fits by chance once in 2^40 runs.
// Where rows come and go (Workload::rows_come_and_go) the model is no such sum: then the version
// says how many pushes were applied, at least the acknowledged ones and at most all that were sent.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_CHECKERS_EXACTLY_ONCE_LEDGER_H_
#define CAPSTAN_TESTS_SIMULATION_CHECKERS_EXACTLY_ONCE_LEDGER_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/simulation/world/checker.h"
#include "tests/simulation/world/history.h"
#include "tests/simulation/world/workload.h"

namespace capstan::sim {

class ExactlyOnceLedger final : public Checker {
 public:
  // `moved_by_tasks`: the scheduler does not reach the model's folder. Then a task that was told to
  // move its model may do so after the job has gone back; whoever moves a newer one replaces it.
  ExactlyOnceLedger(const Workload* workload, bool moved_by_tasks)
      : workload_(workload), moved_by_tasks_(moved_by_tasks) {}

  void PushSent(const ShardPush& push) override;
  void PushAcknowledged(const TaskKey& task_key, ShardKey shard, const Batch& batch,
                        Version version) override;
  void ReadDone(const ShardRead& read) override {
    read_[{read.task_key, read.shard}] = read.version;
  }
  void Exported(const TaskKey& task_key, const std::vector<std::vector<float>>& tables,
                const std::map<TableId, Version>& versions) override;
  void RoutingSent(const scheduler::Routing& routing) override;
  void AtEnd(bool succeeded) override;
  void Happened(const scheduler::Event& event) override { history_.Happened(event, pushes_); }

 private:
  struct Push {
    uint64_t number = 0;
    bool acknowledged = false;
  };

  // Known facts about the pushes to a shard.
  struct Sent {
    int64_t acknowledged = 0;
    uint64_t acknowledged_sum = 0;
    std::vector<uint64_t> unknown;
  };
  Sent SentTo(ShardKey shard) const;
  void CheckShard(const scheduler::ShardRoute& shard, const std::vector<float>& values);
  void CheckVersion(ShardKey shard, Version version);

  const Workload* const workload_;
  const bool moved_by_tasks_;
  bool superseded_ = false;  // The model that lies in its place is of a timeline that was left.
  std::map<std::pair<TaskKey, ShardKey>, Version> read_;  // Last.
  std::vector<scheduler::ShardRoute> shards_;             // Each shard's place in its table.
  // Keyed by the batch: a push that a client repeats under a new number is still one push.
  using Pushes = std::map<std::tuple<ShardKey, TaskKey, Epoch, int64_t>, Push>;
  Pushes pushes_;
  History<Pushes> history_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_CHECKERS_EXACTLY_ONCE_LEDGER_H_
