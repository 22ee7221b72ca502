// ConsistencyPolicy: the rule of one shard that says when gradients are applied and who may read
// what.
//
// One file per rule (bsp_policy, ssp_policy, asp_policy), so that a change of a rule touches one
// file. A policy sees pushes that have passed fencing and, unless it deduplicates by slot, the
// duplicate filter. ShardCore carries its decisions out. Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_CORE_CONSISTENCY_CONSISTENCY_POLICY_H_
#define CAPSTAN_SERVER_CORE_CONSISTENCY_CONSISTENCY_POLICY_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/consistency_rule.h"
#include "server/core/consistency/slot_tree.h"
#include "server/core/messages/membership.h"
#include "server/core/messages/messages.h"
#include "server/core/messages/shard_record.h"

namespace capstan::server {

// The versions of a shard that can be read now.
struct ShardVersions {
  Version current;
  bool previous_readable = false;  // Version current - 1 is still held.
};

struct PushDecision {
  PushOutcome outcome = PushOutcome::kRecorded;
  bool release_previous = false;  // Done first.
  SlotArrival gradients;          // BSP: what to drop, keep and add.
  bool apply = false;             // Then apply `apply_gradient`.
  GradientId apply_gradient = kIncomingGradient;
  bool keep_previous = false;                           // Keep the values before that update.
  ShardRecord::Kind record = ShardRecord::Kind::kPush;  // The record of that update.
};

struct PullDecision {
  enum class Kind { kCurrent, kPrevious, kWait, kPast };
  Kind kind = Kind::kCurrent;
  int64_t staleness = 0;  // See ReplyPull.
};

class ConsistencyPolicy {
 public:
  virtual ~ConsistencyPolicy() = default;

  // True: a repeated push is recognized by its slots; false: by its sequence number.
  virtual bool DeduplicatesBySlot() const = 0;

  // Errors: kInvalidArgument  the iteration or the slots cannot be pushed.
  virtual absl::Status CheckPush(const PushHead& push, const ShardVersions& versions) const = 0;

  // Accepts a push. REQUIRES: CheckPush is OK.
  virtual PushDecision Push(const PushHead& push, const ShardVersions& versions) = 0;

  // The version that contains a push which was accepted or was a duplicate; `versions` are those
  // after the push.
  virtual Version SafeWith(const PushHead& push, const ShardVersions& versions) const = 0;

  // Applies a recorded push or update again. REQUIRES: it follows from this policy's state.
  virtual PushDecision Replay(const ShardRecord& record, const ShardVersions& versions) = 0;

  // Whether a pull at `iteration` can be answered, and from which values. Changes nothing.
  virtual PullDecision Pull(Iteration iteration, const ShardVersions& versions) const = 0;

  // The workers or slots that a pull at `iteration` waits for. REQUIRES: Pull returned kWait.
  virtual WaitingOn WaitsOn(Iteration iteration, const ShardVersions& versions) const = 0;

  virtual void SetMembership(const Membership& membership) = 0;

  // True while accepted pushes are in no record yet.
  virtual bool HasPartial() const { return false; }

  // Save and restore the policy's part of the state, without the slots of an unfinished iteration.
  virtual void Save(ShardCoreState& state) const = 0;
  virtual void Restore(const ShardCoreState& state) = 0;
};

// Errors: kInvalidArgument  slots, staleness_bound or delay_compensation out of range; corrections
//         under BSP, which has no late gradients.
absl::StatusOr<std::unique_ptr<ConsistencyPolicy>> MakePolicy(const ConsistencyRule& config);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_CONSISTENCY_CONSISTENCY_POLICY_H_
