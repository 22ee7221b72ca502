// AspPolicy: the asynchronous consistency policy: a push is applied at once and a pull never waits.
// Clocks only measure the staleness that readers see.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_CORE_CONSISTENCY_ASP_POLICY_H_
#define CAPSTAN_SERVER_CORE_CONSISTENCY_ASP_POLICY_H_

#include "server/core/consistency/consistency_policy.h"
#include "server/core/consistency/worker_clocks.h"

namespace capstan::server {

class AspPolicy final : public ConsistencyPolicy {
 public:
  bool DeduplicatesBySlot() const override { return false; }
  absl::Status CheckPush(const PushHead& push, const ShardVersions& versions) const override;
  PushDecision Push(const PushHead& push, const ShardVersions& versions) override;
  PullDecision Pull(Iteration iteration, const ShardVersions& versions) const override;
  WaitingOn WaitsOn(Iteration iteration, const ShardVersions& versions) const override;
  Version SafeWith(const PushHead&, const ShardVersions& versions) const override {
    return versions.current;
  }
  PushDecision Replay(const ShardRecord& record, const ShardVersions& versions) override;
  void SetMembership(const Membership& membership) override { clocks_.SetMembership(membership); }
  void Save(ShardCoreState& state) const override { clocks_.Save(state); }
  void Restore(const ShardCoreState& state) override { clocks_.Restore(state); }

 private:
  WorkerClocks clocks_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_CONSISTENCY_ASP_POLICY_H_
