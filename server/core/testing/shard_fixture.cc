#include "server/core/testing/shard_fixture.h"

#include <catch2/catch.hpp>
#include <utility>
#include <variant>

#include "common/testing/status_matchers.h"

namespace capstan::server {
namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

ShardCore MakeCore(const ConsistencyRule& config) {
  REQUIRE_OK_AND_ASSIGN(ShardCore core, ShardCore::Make(config));
  return core;
}

ShardCore RestoreCore(const ConsistencyRule& config, const ShardCoreState& state) {
  REQUIRE_OK_AND_ASSIGN(ShardCore core, ShardCore::Restore(config, state));
  return core;
}

}  // namespace

ConsistencyRule Bsp(int32_t slots, int32_t backups) {
  return {.mode = ConsistencyMode::kBsp, .slots = slots, .backups = backups};
}
ConsistencyRule Ssp(int32_t staleness_bound) {
  return {.mode = ConsistencyMode::kSsp, .staleness_bound = staleness_bound};
}
ConsistencyRule Asp() { return {.mode = ConsistencyMode::kAsp}; }

PushHead SlotPush(int64_t iteration, int32_t slot, int32_t rank, uint64_t incarnation) {
  PushHead head;
  head.rank = Rank(rank);
  head.incarnation = Incarnation(incarnation);
  head.iteration = Iteration(iteration);
  head.slot_begin = slot;
  head.slot_end = slot + 1;
  head.sequence = Sequence(1);
  return head;
}

PushHead BatchPush(int32_t rank, uint64_t incarnation, int64_t iteration, uint64_t sequence) {
  PushHead head;
  head.rank = Rank(rank);
  head.incarnation = Incarnation(incarnation);
  head.iteration = Iteration(iteration);
  head.sequence = Sequence(sequence);
  return head;
}

Member ActiveMember(int32_t rank, uint64_t incarnation, int64_t start_iteration) {
  return {.rank = Rank(rank),
          .incarnation = Incarnation(incarnation),
          .active = true,
          .start_iteration = Iteration(start_iteration)};
}

Member RestingMember(int32_t rank, uint64_t incarnation) {
  return {.rank = Rank(rank),
          .incarnation = Incarnation(incarnation),
          .active = false,
          .start_iteration = Iteration(0)};
}

ShardFixture::ShardFixture(const ConsistencyRule& config) : core_(MakeCore(config)) {}

ReplyPush ShardFixture::Push(PushHead head, int64_t gradient) {
  REQUIRE_OK(TryPush(head, gradient));
  return push_replies_.at(PushToken(next_token_ - 1));
}

absl::Status ShardFixture::TryPush(PushHead head, int64_t gradient) {
  head.token = PushToken(next_token_++);
  Actions actions;
  const absl::Status status = core_.Push(head, actions);
  if (!status.ok()) REQUIRE(actions.empty());
  CarryOut(actions, gradient);
  REQUIRE(status.ok() == push_replies_.contains(head.token));
  return status;
}

PullToken ShardFixture::Pull(int64_t iteration, int32_t rank, uint64_t incarnation) {
  PullHead head;
  head.rank = Rank(rank);
  head.incarnation = Incarnation(incarnation);
  head.iteration = Iteration(iteration);
  head.deadline = now_ + kPatience;
  return Pull(head);
}

PullToken ShardFixture::Pull(PullHead head) {
  REQUIRE_OK(TryPull(head));
  return PullToken(next_token_ - 1);
}

absl::Status ShardFixture::TryPull(PullHead head) {
  head.token = PullToken(next_token_++);
  Actions actions;
  const absl::Status status = core_.Pull(head, now_, actions);
  if (!status.ok()) REQUIRE(actions.empty());
  CarryOut(actions, 0);
  return status;
}

std::optional<ShardFixture::Answer> ShardFixture::AnswerTo(PullToken token) const {
  const auto it = answers_.find(token);
  if (it == answers_.end()) return std::nullopt;
  return it->second;
}

void ShardFixture::SetMembers(std::vector<Member> members) {
  Actions actions;
  core_.SetMembership(
      {.generation = Generation(++membership_generation_), .members = std::move(members)}, actions);
  CarryOut(actions, 0);
}

void ShardFixture::Pass(absl::Duration time) {
  now_ = now_ + time;
  Actions actions;
  core_.Tick(now_, actions);
  CarryOut(actions, 0);
  REQUIRE(core_.NextDeadline() > now_);
}

ShardFixture::ShardFixture(const ConsistencyRule& config, const ShardFixture& other)
    : core_(RestoreCore(config, other.core_.Save())),
      value_(other.value_),
      previous_(other.core_.Save().previous_readable ? other.previous_ : std::nullopt),
      applied_count_(other.applied_count_),
      records_(other.records_) {}

void ShardFixture::Replay(const ShardFixture& primary) {
  while (record_count() < primary.record_count()) {
    const Recorded& next = primary.records_[records_.size()];
    Actions actions;
    REQUIRE_OK(core_.Replay(next.record, actions));
    const bool makes_record = next.record.kind == ShardRecord::Kind::kPush ||
                              next.record.kind == ShardRecord::Kind::kUpdate;
    CarryOut(actions, next.gradient);
    if (!makes_record) records_.push_back(next);
    REQUIRE(records_.back().record == next.record);
  }
}

void ShardFixture::CarryOut(const Actions& actions, int64_t incoming) {
  const auto gradient = [&](GradientId id) {
    return id == kIncomingGradient ? incoming : gradients_.at(id);
  };
  for (const Action& each : actions) {
    std::visit(
        Overloaded{
            [&](const KeepGradient& keep) {
              REQUIRE(gradients_.insert({keep.as, incoming}).second);
            },
            [&](const AddGradient& add) {
              gradients_.at(add.into) += gradient(add.from);
              gradients_.erase(add.from);
            },
            [&](const DropGradient& drop) { REQUIRE(gradients_.erase(drop.gradient) == 1); },
            [&](const CorrectGradient& correct) {
              REQUIRE(correct.divisor >= 1);
              int64_t corrected = incoming;
              if (correct.delay_compensation > 0.0f) {
                const int64_t moved = value_ - kept_values_.at(correct.computed_with);
                corrected +=
                    static_cast<int64_t>(correct.delay_compensation) * incoming * incoming * moved;
              }
              corrected /= correct.divisor;
              REQUIRE(gradients_.insert({kCorrectedGradient, corrected}).second);
            },
            [&](const KeepValues& keep) {
              REQUIRE(keep.version == Version(applied_count_));
              REQUIRE(kept_values_.insert({keep.version, value_}).second);
            },
            [&](const ForgetValues& forget) { REQUIRE(kept_values_.erase(forget.version) == 1); },
            [&](const ReleasePrevious&) {
              REQUIRE(previous_.has_value());
              previous_.reset();
            },
            [&](const MakeRecord& made) {
              REQUIRE(made.record.position == Position(record_count() + 1));
              records_.push_back({made.record, gradient(made.gradient)});
            },
            [&](const ApplyGradient& apply) {
              REQUIRE(apply.step == applied_count_++);
              REQUIRE_FALSE(previous_.has_value());
              if (apply.keep_previous) previous_ = value_;
              value_ += gradient(apply.gradient);
              gradients_.erase(apply.gradient);
            },
            [&](const ReplyPush& reply) {
              REQUIRE(reply.rests_on <= core_.version().Next());
              REQUIRE(push_replies_.insert({reply.token, reply}).second);
            },
            [&](const ReplyPull& reply) {
              Answer answer{.reply = reply};
              if (reply.read_from == ReadFrom::kCurrent) answer.value = value_;
              if (reply.read_from == ReadFrom::kPrevious) answer.value = previous_.value();
              REQUIRE(answers_.insert({reply.token, answer}).second);
            }},
        each);
  }
}

}  // namespace capstan::server
