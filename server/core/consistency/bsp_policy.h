// BspPolicy: the bulk-synchronous consistency policy: the M slots of an iteration are summed in a
// fixed tree and applied once, when all have arrived, or with b backups when M - b have
// (README.md).
//
// A pull at iteration c reads exactly version c. After iteration c is applied (version c + 1),
// version c stays readable until the first push for iteration c + 1: its sender has seen the whole
// model at c + 1, so every shard has finished c and nobody needs version c again. Until then a slot
// of a worker that died can be computed once more by another. This holds with backups, too: a slot
// that one shard drops may be needed by another shard, which has not finished c.
//
//   version v, tree empty,  --first push at v-->  tree filling  --last needed-->  version v+1, tree
//   v-1 readable                                  v readable                    empty, v readable
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_CORE_CONSISTENCY_BSP_POLICY_H_
#define CAPSTAN_SERVER_CORE_CONSISTENCY_BSP_POLICY_H_

#include <vector>

#include "server/core/consistency/consistency_policy.h"

namespace capstan::server {

class BspPolicy final : public ConsistencyPolicy {
 public:
  // REQUIRES: as SlotTree.
  explicit BspPolicy(const ConsistencyRule& rule)
      : tree_(rule.slots, rule.backups),
        arrived_(rule.backups > 0 ? rule.slots : 0, Iteration(-1)) {}

  bool DeduplicatesBySlot() const override { return true; }
  absl::Status CheckPush(const PushHead& push, const ShardVersions& versions) const override;
  PushDecision Push(const PushHead& push, const ShardVersions& versions) override;
  PullDecision Pull(Iteration iteration, const ShardVersions& versions) const override;
  WaitingOn WaitsOn(Iteration iteration, const ShardVersions& versions) const override;
  // Slots, not workers, are counted: nothing depends on who is a member.
  void SetMembership(const Membership&) override {}
  Version SafeWith(const PushHead& push, const ShardVersions&) const override {
    return Version(push.iteration.value() + 1);
  }
  PushDecision Replay(const ShardRecord& record, const ShardVersions& versions) override;
  bool HasPartial() const override { return !tree_.empty(); }
  void Save(ShardCoreState&) const override {}
  void Restore(const ShardCoreState&) override {}

 private:
  // Notes that the push has arrived. Returns whether neither it nor a later push of its slot had
  // arrived before.
  bool NoteArrival(const PushHead& push);

  SlotTree tree_;  // The arrivals of iteration `versions.current`.
  // In a job with backups, for each slot: the last iteration whose push has arrived. A restored
  // shard has forgotten these, so it counts repetitions of earlier pushes as late.
  std::vector<Iteration> arrived_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_CONSISTENCY_BSP_POLICY_H_
