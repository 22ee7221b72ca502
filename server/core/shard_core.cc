#include "server/core/shard_core.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

absl::Status CheckIteration(Iteration iteration) {
  if (iteration >= Iteration(0) && iteration <= kIterationMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("iteration ", iteration.value(), ": expected 0 to ", kIterationMax.value()));
}

// Checks what a state from a disk or a peer says of its shard's counts.
absl::Status CheckCounts(const ShardCoreState& state) {
  struct Count {
    const char* name;
    int64_t value;
    int64_t max;
  };
  const int64_t max = kPositionMax.value();
  for (const Count& count : {Count{"position", state.position.value(), max},
                             Count{"version", state.version.value(), kIterationMax.value()},
                             Count{"pushes_recorded", state.pushes_recorded, max},
                             Count{"pushes_duplicate", state.pushes_duplicate, max},
                             Count{"pushes_late", state.pushes_late, max}}) {
    if (count.value >= 0 && count.value <= count.max) continue;
    return absl::DataLossError(
        absl::StrCat(count.name, " ", count.value, ": expected 0 to ", count.max));
  }
  if (!state.previous_readable || state.version > Version(0)) return absl::OkStatus();
  return absl::DataLossError("version 0 has a previous one: expected none");
}

ShardRecord RecordOf(const PushHead& push, Version version, ShardRecord::Kind kind) {
  ShardRecord record{.kind = kind, .membership = {}};
  if (kind == ShardRecord::Kind::kUpdate) {
    record.version = version;
    return record;
  }
  record.rank = push.rank;
  record.incarnation = push.incarnation;
  record.iteration = push.iteration;
  record.sequence = push.sequence;
  record.sequence_low_water = push.sequence_low_water;
  return record;
}

}  // namespace

ShardCore::ShardCore(const ConsistencyRule& config, std::unique_ptr<ConsistencyPolicy> policy)
    : config_(config), policy_(std::move(policy)) {
  const bool compensates = config.delay_compensation > 0.0f;
  if (!compensates && !config.rate_by_staleness) return;
  pulled_.emplace(compensates ? PulledVersions::Values::kKept : PulledVersions::Values::kNotNeeded);
}

absl::StatusOr<ShardCore> ShardCore::Make(const ConsistencyRule& config, int64_t ttl_seconds) {
  CAPSTAN_ASSIGN_OR_RETURN(auto policy, MakePolicy(config));
  ShardCore core(config, std::move(policy));
  core.ticks_ = ClockTicks(ttl_seconds);
  return core;
}

absl::Status ShardCore::CheckListed(Rank rank, Incarnation incarnation) const {
  CAPSTAN_RETURN_IF_ERROR(filter_.CheckIncarnation(rank, incarnation));
  const bool any_known =
      membership_generation_ > Generation(0) && !Planted(PlantedBug::kAcceptOldIncarnation);
  if (!any_known || filter_.Lists(rank, incarnation)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("incarnation ", incarnation.value(), " of rank ", rank.value(),
                   ": expected one that the scheduler has listed, up to membership generation ",
                   membership_generation_.value(), "; try again"));
}

absl::Status ShardCore::CheckPush(const PushHead& push) const {
  CAPSTAN_RETURN_IF_ERROR(CheckIteration(push.iteration));
  CAPSTAN_RETURN_IF_ERROR(CheckListed(push.rank, push.incarnation));
  if (!policy_->DeduplicatesBySlot()) CAPSTAN_RETURN_IF_ERROR(filter_.Check(push).status());
  return policy_->CheckPush(push, versions_);
}

absl::Status ShardCore::Push(const PushHead& push, Actions& actions) {
  CAPSTAN_RETURN_IF_ERROR(CheckPush(push));
  filter_.Admit(push.rank, push.incarnation);
  PushDecision decision;
  if (!policy_->DeduplicatesBySlot()) {
    CAPSTAN_ASSIGN_OR_RETURN(decision.outcome, filter_.Check(push));
    if (decision.outcome == PushOutcome::kRecorded) {
      filter_.Record(push.rank, push.incarnation, push.sequence, push.sequence_low_water);
    }
  }
  if (decision.outcome == PushOutcome::kRecorded) decision = policy_->Push(push, versions_);

  if (decision.outcome == PushOutcome::kRecorded) {
    ++pushes_recorded_;
    if (pulled_.has_value()) Correct(push, decision, actions);
    CarryOut(decision, RecordOf(push, versions_.current, decision.record), actions);
    if (pulled_.has_value()) pulled_->Forget(push.rank, push.iteration, actions);
  } else {
    ++(decision.outcome == PushOutcome::kLate ? pushes_late_ : pushes_duplicate_);
  }
  actions.emplace_back(ReplyPush{.token = push.token,
                                 .outcome = decision.outcome,
                                 .version = versions_.current,
                                 .rests_on = policy_->SafeWith(push, versions_)});
  if (decision.apply) AnswerPending(actions);
  return absl::OkStatus();
}

void ShardCore::Correct(const PushHead& push, PushDecision& decision, Actions& actions) const {
  const std::optional<Version> pulled =
      pulled_->ComputedWith(push.rank, push.incarnation, push.iteration);
  if (!pulled.has_value()) return;
  const int64_t updates = versions_.current.value() - pulled->value();
  CorrectGradient correction{.computed_with = *pulled};
  if (config_.rate_by_staleness) correction.divisor = std::max<int64_t>(1, updates);
  if (updates > 0) correction.delay_compensation = config_.delay_compensation;
  if (correction.divisor == 1 && correction.delay_compensation == 0.0f) return;
  actions.emplace_back(correction);
  decision.apply_gradient = kCorrectedGradient;
}

absl::Status ShardCore::CheckPull(const PullHead& pull) const {
  if (pull.rank == kReaderRank) {
    if (pull.snapshot) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "rank -1: a reader that is no worker may only pull snapshots");
  }
  if (!pull.snapshot) CAPSTAN_RETURN_IF_ERROR(CheckIteration(pull.iteration));
  CAPSTAN_RETURN_IF_ERROR(CheckListed(pull.rank, pull.incarnation));
  if (pulls_pending() >= kPendingPullsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(pulls_pending(), " pulls wait on this shard already: expected fewer than ",
                     kPendingPullsMax));
  }
  return absl::OkStatus();
}

absl::Status ShardCore::Pull(const PullHead& pull, Instant now, Actions& actions) {
  CAPSTAN_RETURN_IF_ERROR(CheckPull(pull));
  if (pull.rank != kReaderRank) filter_.Admit(pull.rank, pull.incarnation);
  if (TryAnswer(pull, actions)) return absl::OkStatus();
  if (pull.deadline <= now) {
    AnswerNotReady(pull, actions);
    return absl::OkStatus();
  }
  pending_.insert({pull.token, pull});
  deadlines_.insert({pull.deadline, pull.token});
  return absl::OkStatus();
}

void ShardCore::CancelPull(PullToken token) {
  const auto it = pending_.find(token);
  if (it == pending_.end()) return;
  deadlines_.erase({it->second.deadline, token});
  pending_.erase(it);
}

void ShardCore::SetMembership(const Membership& membership, Actions& actions) {
  if (membership.generation <= membership_generation_) return;
  if (Planted(PlantedBug::kIgnoreMembership)) return;
  ApplyMembership(membership);
  if (pulled_.has_value()) pulled_->SetMembership(membership, actions);
  Record({.kind = ShardRecord::Kind::kMembership, .membership = membership}, kIncomingGradient,
         versions_.current, actions);
  AnswerPending(actions);
}

void ShardCore::ApplyMembership(const Membership& membership) {
  membership_generation_ = membership.generation;
  learning_rate_factor_ = membership.learning_rate_factor;
  ticks_.Note(membership.clock_seconds, versions_.current);
  filter_.SetMembership(membership);
  policy_->SetMembership(membership);
}

void ShardCore::MakeBarrier(Actions& actions) {
  Record({.kind = ShardRecord::Kind::kBarrier, .membership = {}}, kIncomingGradient,
         versions_.current, actions);
}

absl::Status ShardCore::Replay(const ShardRecord& record, Actions& actions) {
  using Kind = ShardRecord::Kind;
  if (record.position != position_.Next()) {
    return absl::DataLossError(
        absl::StrCat("record ", record.position.value(), ": expected ", position_.Next().value()));
  }
  const Kind other = policy_->DeduplicatesBySlot() ? Kind::kPush : Kind::kUpdate;
  if (record.kind == other) {
    return absl::DataLossError(
        absl::StrCat("record ", record.position.value(), " is ",
                     other == Kind::kPush ? "a push: expected updates, the job is BSP"
                                          : "an update: expected pushes, the job is not BSP"));
  }
  if (record.kind == Kind::kUpdate && record.version != versions_.current) {
    return absl::DataLossError(absl::StrCat("record ", record.position.value(), " is of version ",
                                            record.version.value(), ": expected ",
                                            versions_.current.value()));
  }
  switch (record.kind) {
    case Kind::kBarrier:
      ++position_;
      break;
    case Kind::kMembership:
      ++position_;
      ApplyMembership(record.membership);
      break;
    case Kind::kPush:
      filter_.Record(record.rank, record.incarnation, record.sequence, record.sequence_low_water);
      ++pushes_recorded_;
      [[fallthrough]];
    case Kind::kUpdate:
      CarryOut(policy_->Replay(record, versions_), record, actions);
      break;
  }
  return absl::OkStatus();
}

ShardCoreState ShardCore::Save() const {
  ShardCoreState state{.position = position_,
                       .version = versions_.current,
                       .previous_readable = versions_.previous_readable,
                       .membership_generation = membership_generation_,
                       .pushes_recorded = pushes_recorded_,
                       .pushes_duplicate = pushes_duplicate_,
                       .pushes_late = pushes_late_,
                       .incarnation_floor = filter_.floor(),
                       .learning_rate_factor = learning_rate_factor_,
                       .ticks = ticks_.all(),
                       .push_marks = filter_.Save(),
                       .members = {},
                       .early = {}};
  policy_->Save(state);
  return state;
}

absl::StatusOr<ShardCore> ShardCore::Restore(const ConsistencyRule& config,
                                             const ShardCoreState& state, int64_t ttl_seconds) {
  CAPSTAN_RETURN_IF_ERROR(CheckCounts(state));
  CAPSTAN_ASSIGN_OR_RETURN(ShardCore core, Make(config, ttl_seconds));
  CAPSTAN_RETURN_IF_ERROR(core.ticks_.Restore(state.ticks, state.version));
  core.position_ = state.position;
  core.versions_ = {.current = state.version, .previous_readable = state.previous_readable};
  core.membership_generation_ = state.membership_generation;
  core.learning_rate_factor_ = state.learning_rate_factor;
  core.pushes_recorded_ = state.pushes_recorded;
  core.pushes_duplicate_ = state.pushes_duplicate;
  core.pushes_late_ = state.pushes_late;
  core.filter_.Restore(state.incarnation_floor, state.push_marks);
  core.policy_->Restore(state);
  return core;
}

void ShardCore::Tick(Instant now, Actions& actions) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto it = pending_.find(deadlines_.begin()->second);
    AnswerNotReady(it->second, actions);
    pending_.erase(it);
    deadlines_.erase(deadlines_.begin());
  }
}

Instant ShardCore::NextDeadline() const {
  return deadlines_.empty() ? Instant::InfiniteFuture() : deadlines_.begin()->first;
}

void ShardCore::Record(ShardRecord record, GradientId gradient, Version version_after,
                       Actions& actions) {
  record.position = ++position_;
  actions.emplace_back(MakeRecord{
      .record = std::move(record), .gradient = gradient, .version_after = version_after});
}

void ShardCore::CarryOut(const PushDecision& decision, ShardRecord record, Actions& actions) {
  if (decision.release_previous) {
    actions.emplace_back(ReleasePrevious{});
    versions_.previous_readable = false;
  }
  const SlotArrival& gradients = decision.gradients;
  for (const GradientId dropped : gradients.dropped) actions.emplace_back(DropGradient{dropped});
  if (gradients.keep) actions.emplace_back(KeepGradient{gradients.kept});
  for (const AddGradient& addition : gradients.additions) actions.emplace_back(addition);
  if (decision.apply) {
    Record(std::move(record), decision.apply_gradient, versions_.current.Next(), actions);
    actions.emplace_back(ApplyGradient{.gradient = decision.apply_gradient,
                                       .step = versions_.current.value(),
                                       .learning_rate_factor = learning_rate_factor_,
                                       .keep_previous = decision.keep_previous,
                                       .evict_before = ticks_.EvictBefore()});
    ++versions_.current;
    versions_.previous_readable = decision.keep_previous;
  }
}

bool ShardCore::TryAnswer(const PullHead& pull, Actions& actions) {
  if (!TryReply(pull, actions)) return false;
  if (pulled_.has_value() && !pull.snapshot) {
    pulled_->Remember(pull.rank, pull.incarnation, pull.iteration, versions_.current, actions);
  }
  return true;
}

bool ShardCore::TryReply(const PullHead& pull, Actions& actions) const {
  PullDecision decision;  // A snapshot reads the current version.
  if (!pull.snapshot) decision = policy_->Pull(pull.iteration, versions_);
  ReplyPull reply{.token = pull.token,
                  .version = versions_.current,
                  .staleness = decision.staleness,
                  .membership = membership_generation_};
  switch (decision.kind) {
    case PullDecision::Kind::kWait:
      return false;
    case PullDecision::Kind::kPast:
      reply.outcome = PullOutcome::kPast;
      if (versions_.previous_readable) reply.version = Version(versions_.current.value() - 1);
      actions.emplace_back(reply);
      return true;
    case PullDecision::Kind::kPrevious:
      reply.version = Version(versions_.current.value() - 1);
      reply.read_from = ReadFrom::kPrevious;
      break;
    case PullDecision::Kind::kCurrent:
      reply.read_from = ReadFrom::kCurrent;
      break;
  }
  if (pull.held_version == reply.version) {
    reply.outcome = PullOutcome::kUnchanged;
    reply.read_from = ReadFrom::kNothing;
  }
  actions.emplace_back(reply);
  return true;
}

void ShardCore::AnswerPending(Actions& actions) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (TryAnswer(it->second, actions)) {
      deadlines_.erase({it->second.deadline, it->first});
      it = pending_.erase(it);
    } else {
      ++it;
    }
  }
}

void ShardCore::AnswerNotReady(const PullHead& pull, Actions& actions) const {
  actions.emplace_back(ReplyPull{.token = pull.token,
                                 .outcome = PullOutcome::kNotReady,
                                 .version = versions_.current,
                                 .waiting_on = policy_->WaitsOn(pull.iteration, versions_)});
}

}  // namespace capstan::server
