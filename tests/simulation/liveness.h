// Liveness: once the world has healed the job ends in time, and it ends as its options allow.
//
// It must succeed unless something that was done to the world is named as a reason to fail:
// the scheduler has declared dead the primary of a shard and every replica of it that was in sync,
// in a job without a log and a checkpoint, or before it has begun to train; or a disk suffered
// under a job with a log (SERVER_LOST).
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_LIVENESS_H_
#define CAPSTAN_TESTS_SIMULATION_LIVENESS_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/container/btree_set.h"
#include "scheduler/core/events.h"
#include "scheduler/core/views.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/fault.h"
#include "tests/simulation/options.h"

namespace capstan::sim {

class Liveness final : public Checker {
 public:
  // `faults` outlives the checker.
  Liveness(const Options& options, const FaultCounts* faults)
      : options_(options), faults_(faults) {}

  void Happened(const scheduler::Event& event) override;
  void RoutingSent(const scheduler::Routing& routing) override;
  void Exported(const Life& life, const std::vector<std::vector<float>>& tables,
                const absl::btree_map<TableId, Version>& versions) override;

  bool ended() const { return ended_; }  // The job has, as the scheduler has told.
  // The time is over. `job`: as the scheduler sees it.
  void CheckEnd(const std::optional<scheduler::JobView>& job);

 private:
  bool MayFail(const scheduler::Failure& failure) const;
  // Of some shard the primary and every replica in sync have died.
  bool LostShard() const;
  bool DiskSuffered() const;  // Some disk was lost, or a fault of one was injected.

  const Options options_;
  const FaultCounts* const faults_;
  absl::btree_set<std::pair<NodeId, Incarnation>> dead_;
  scheduler::Routing routing_;  // The newest that was sent.
  bool trained_ = false;        // Has begun to.
  bool checkpointed_ = false;   // One is complete.
  bool exported_ = false;
  bool ended_ = false;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_LIVENESS_H_
