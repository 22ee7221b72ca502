#include "server/core/shard_core.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

absl::Status CheckIteration(Iteration iteration) {
  if (iteration >= Iteration(0) && iteration <= kIterationMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("iteration ", iteration.value(), ": expected 0 to ", kIterationMax.value()));
}

}  // namespace

absl::StatusOr<ShardCore> ShardCore::Make(const ConsistencyConfig& config) {
  CAPSTAN_ASSIGN_OR_RETURN(auto policy, MakePolicy(config));
  return ShardCore(std::move(policy));
}

absl::Status ShardCore::CheckPush(const PushHead& push) const {
  CAPSTAN_RETURN_IF_ERROR(CheckIteration(push.iteration));
  CAPSTAN_RETURN_IF_ERROR(filter_.CheckIncarnation(push.rank, push.incarnation));
  if (!policy_->DeduplicatesBySlot()) CAPSTAN_RETURN_IF_ERROR(filter_.Check(push).status());
  return policy_->CheckPush(push, versions_);
}

absl::Status ShardCore::Push(const PushHead& push, Actions& actions) {
  CAPSTAN_RETURN_IF_ERROR(CheckPush(push));
  filter_.Admit(push.rank, push.incarnation);
  PushDecision decision;
  if (!policy_->DeduplicatesBySlot()) {
    CAPSTAN_ASSIGN_OR_RETURN(decision.outcome, filter_.Check(push));
    if (decision.outcome == PushOutcome::kRecorded) filter_.Record(push);
  }
  if (decision.outcome == PushOutcome::kRecorded) decision = policy_->Push(push, versions_);

  if (decision.outcome == PushOutcome::kRecorded) {
    ++pushes_recorded_;
    CarryOut(decision, actions);
  } else {
    ++pushes_duplicate_;
  }
  actions.emplace_back(
      ReplyPush{.token = push.token, .outcome = decision.outcome, .version = versions_.current});
  if (decision.apply) AnswerPending(actions);
  return absl::OkStatus();
}

absl::Status ShardCore::CheckPull(const PullHead& pull) const {
  if (pull.rank == kReaderRank) {
    if (pull.snapshot) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "rank -1: a reader that is no worker may only pull snapshots");
  }
  if (!pull.snapshot) CAPSTAN_RETURN_IF_ERROR(CheckIteration(pull.iteration));
  CAPSTAN_RETURN_IF_ERROR(filter_.CheckIncarnation(pull.rank, pull.incarnation));
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
  membership_generation_ = membership.generation;
  filter_.SetMembership(membership);
  policy_->SetMembership(membership);
  AnswerPending(actions);
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

void ShardCore::CarryOut(const PushDecision& decision, Actions& actions) {
  if (decision.release_previous) {
    actions.emplace_back(ReleasePrevious{});
    versions_.previous_readable = false;
  }
  const SlotArrival& gradients = decision.gradients;
  for (const GradientId dropped : gradients.dropped) actions.emplace_back(DropGradient{dropped});
  if (gradients.keep) actions.emplace_back(KeepGradient{gradients.kept});
  for (const AddGradient& addition : gradients.additions) actions.emplace_back(addition);
  if (decision.apply) {
    actions.emplace_back(ApplyGradient{.gradient = decision.apply_gradient,
                                       .step = versions_.current.value(),
                                       .keep_previous = decision.keep_previous});
    ++versions_.current;
    versions_.previous_readable = decision.keep_previous;
  }
}

bool ShardCore::TryAnswer(const PullHead& pull, Actions& actions) const {
  PullDecision decision;  // A snapshot reads what is there.
  if (!pull.snapshot) decision = policy_->Pull(pull.iteration, versions_);
  ReplyPull reply{
      .token = pull.token, .version = versions_.current, .staleness = decision.staleness};
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
                                 .waiting_for = policy_->WaitingFor(pull.iteration, versions_)});
}

}  // namespace capstan::server
