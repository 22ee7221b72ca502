// ShardCore: one shard's state machine: heads of pushes and pulls in, ordered actions out.
//
//   push --> fenced? --> repeated? --> policy: keep / add / apply --> ReplyPush kRecorded
//              |            |              |         |
//           kAborted    ReplyPush      ReplyPush  version + 1 --> pending pulls are tried again
//                       kDuplicate       kLate
//
//   pull --> fenced? --> policy: current / previous --------------> ReplyPull kValues, kUnchanged
//              |            |  past ------------------------------> ReplyPull kPast
//           kAborted        |  wait --> PENDING --push, members---> ReplyPull kValues, kUnchanged
//                                          |------Tick(deadline)--> ReplyPull kNotReady, waiting_on
//                                          '------CancelPull------> forgotten
//
//   a late push (SSP, ASP), where the job asks for it --> CorrectGradient before its MakeRecord
//   a push (SSP, ASP), an update (BSP), a membership, a barrier --> MakeRecord, position + 1
//   Replay(record) on a replica, or from a log: the same changes, no replies
//
// Pure: no clock, threads, sockets or logging. Gradients and values are the shell's, named by id.
// Actions are to be carried out in their order, before the next call.
// Thread safety: thread-compatible; the shell serializes all calls.
// Invariants: (1) a push that was answered kRecorded is applied exactly once, a repetition never.
//             (2) the version never decreases, and grows by one per ApplyGradient.
//             (3) a core that was restored from Save() and has replayed all records since then has
//                 the same Save(), except for fences that no record carries.
//             (4) every pull gets exactly one ReplyPull, unless cancelled, by its deadline.
#ifndef CAPSTAN_SERVER_CORE_SHARD_CORE_H_
#define CAPSTAN_SERVER_CORE_SHARD_CORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "server/core/consistency/consistency_policy.h"
#include "server/core/duplicate_filter.h"
#include "server/core/messages/clock_ticks.h"
#include "server/core/messages/membership.h"
#include "server/core/messages/messages.h"
#include "server/core/messages/shard_record.h"
#include "server/core/pulled_versions.h"

namespace capstan::server {

class ShardCore {
 public:
  // Pulls that may wait on one shard at a time.
  static constexpr int kPendingPullsMax = 8192;

  // `ttl_seconds`: rows leave that no update has named for so many seconds of training time
  // (Membership::clock_seconds); 0: never.
  // Errors: kInvalidArgument  as MakePolicy.
  static absl::StatusOr<ShardCore> Make(const ConsistencyRule& config, int64_t ttl_seconds = 0);

  // Whether Push would accept the push. Changes nothing, so that a message of many shards can be
  // checked as a whole before any of it is carried out.
  // Errors: kAborted            the rank's incarnation is fenced off.
  //         kUnavailable        no membership has listed this incarnation yet, though one is known.
  //         kInvalidArgument    iteration, slots or sequence numbers that cannot be.
  //         kResourceExhausted  the sequence is too far beyond the low-water mark.
  absl::Status CheckPush(const PushHead& push) const;

  // Accepts a push and answers it at once. Errors: as CheckPush; then nothing changes.
  absl::Status Push(const PushHead& push, Actions& actions);

  // Same as CheckPush, for a pull.
  // Errors: kAborted            the rank's incarnation is fenced off.
  //         kUnavailable        as CheckPush.
  //         kInvalidArgument    a reader that asks for more than a snapshot; an iteration out
  //                             of range.
  //         kResourceExhausted  kPendingPullsMax pulls are waiting.
  absl::Status CheckPull(const PullHead& pull) const;

  // Answers the pull, or keeps it until it can be answered or its deadline passes.
  // REQUIRES: the token is not pending. Errors: as CheckPull; then nothing changes.
  absl::Status Pull(const PullHead& pull, Instant now, Actions& actions);

  void CancelPull(PullToken token);  // Its caller is gone. Unknown tokens are ignored.

  // Ignored unless its generation is above that of the membership known.
  void SetMembership(const Membership& membership, Actions& actions);

  // Makes a record that changes nothing: a replica that has it has all records before it.
  void MakeBarrier(Actions& actions);

  // Applies a record that another core of this shard has made, or this one in an earlier
  // incarnation; its gradient is the payload. Fencing and duplicates were decided when it was made.
  // Errors: kDataLoss  it does not follow: the position is not the next, an update is not of this
  //         version, or its kind is not this rule's. Then nothing changes.
  absl::Status Replay(const ShardRecord& record, Actions& actions);

  ShardCoreState Save() const;
  // Makes a core with the state `state`, in which no pulls wait.
  // Errors: kInvalidArgument  as MakePolicy. kDataLoss  a state that cannot be.
  static absl::StatusOr<ShardCore> Restore(const ConsistencyRule& config,
                                           const ShardCoreState& state, int64_t ttl_seconds = 0);

  Position position() const { return position_; }
  // BSP: some slots of an iteration have arrived; no record and no Save() carries them.
  bool has_partial() const { return policy_->HasPartial(); }

  void Tick(Instant now, Actions& actions);  // Answers pulls whose deadline has passed.
  Instant NextDeadline() const;              // InfiniteFuture() if no pull waits.

  Version version() const { return versions_.current; }
  int64_t pushes_recorded() const { return pushes_recorded_; }
  int64_t pushes_duplicate() const { return pushes_duplicate_; }
  int64_t pushes_late() const { return pushes_late_; }
  int pulls_pending() const { return static_cast<int>(pending_.size()); }

 private:
  ShardCore(const ConsistencyRule& config, std::unique_ptr<ConsistencyPolicy> policy);

  // An incarnation counts once the scheduler has listed it: a number that nobody issued would fence
  // the rank's incarnations off for good.
  absl::Status CheckListed(Rank rank, Incarnation incarnation) const;
  // Carries out the decision on a push or record. `record` is the change if it applies anything.
  void CarryOut(const PushDecision& decision, ShardRecord record, Actions& actions);
  // Gives the record its position.
  void Record(ShardRecord record, GradientId gradient, Version version_after, Actions& actions);
  void ApplyMembership(const Membership& membership);
  // Corrects a gradient whose parameters have changed since the worker pulled them: appends a
  // CorrectGradient, and makes `decision` apply its result instead.
  void Correct(const PushHead& push, PushDecision& decision, Actions& actions) const;
  // Appends the answer if there is one; false: the pull has to wait.
  bool TryAnswer(const PullHead& pull, Actions& actions);
  bool TryReply(const PullHead& pull, Actions& actions) const;
  void AnswerPending(Actions& actions);
  void AnswerNotReady(const PullHead& pull, Actions& actions) const;

  ConsistencyRule config_;
  std::unique_ptr<ConsistencyPolicy> policy_;
  std::optional<PulledVersions> pulled_;  // None: late gradients are not corrected.
  DuplicateFilter filter_;
  ShardVersions versions_;
  Position position_;
  Generation membership_generation_;
  double learning_rate_factor_ = 1;
  ClockTicks ticks_;
  int64_t pushes_recorded_ = 0;
  int64_t pushes_duplicate_ = 0;
  int64_t pushes_late_ = 0;
  std::map<PullToken, PullHead> pending_;  // Ordered: the order of answers is observable.
  std::set<std::pair<Instant, PullToken>> deadlines_;  // The deadlines of pending_.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_SHARD_CORE_H_
