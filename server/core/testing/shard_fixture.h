// ShardFixture: a ShardCore with a one-number table, so that a test reads as one scenario.
//
// Carries the core's actions out strictly (a gradient or previous value that does not exist fails
// the test). The table's value is the sum of all applied gradients; integers, so that rounding
// hides nothing.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_CORE_TESTING_SHARD_FIXTURE_H_
#define CAPSTAN_SERVER_CORE_TESTING_SHARD_FIXTURE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/time/instant.h"
#include "server/core/shard_core.h"

namespace capstan::server {

ConsistencyRule Bsp(int32_t slots, int32_t backups = 0);
ConsistencyRule Ssp(int32_t staleness_bound);
ConsistencyRule Asp();

// A push of slot `slot` (BSP), or of one batch with a sequence number (SSP, ASP).
PushHead SlotPush(int64_t iteration, int32_t slot, int32_t rank = 0, uint64_t incarnation = 1);
PushHead BatchPush(int32_t rank, uint64_t incarnation, int64_t iteration, uint64_t sequence);

Member ActiveMember(int32_t rank, uint64_t incarnation, int64_t start_iteration = 0);
Member RestingMember(int32_t rank, uint64_t incarnation);

class ShardFixture {
 public:
  struct Answer {
    ReplyPull reply;
    int64_t value = 0;  // Read where the reply stood in the order; kValues only.
  };

  explicit ShardFixture(const ConsistencyRule& config);
  // A copy as a snapshot makes it: a core restored from what the other one saves.
  ShardFixture(const ConsistencyRule& config, const ShardFixture& other);

  // Applies the records that `primary` has made and this one has not.
  void Replay(const ShardFixture& primary);
  int64_t record_count() const { return static_cast<int64_t>(records_.size()); }

  // Fails the test unless the push is accepted; returns its reply.
  ReplyPush Push(PushHead head, int64_t gradient);
  absl::Status TryPush(PushHead head, int64_t gradient);

  // Fails the test unless the pull is accepted; AnswerTo(token) is its answer.
  PullToken Pull(int64_t iteration, int32_t rank = 0, uint64_t incarnation = 1);
  PullToken Pull(PullHead head);
  absl::Status TryPull(PullHead head);
  void Cancel(PullToken token) { core_.CancelPull(token); }

  std::optional<Answer> AnswerTo(PullToken token) const;
  bool Waits(PullToken token) const { return !AnswerTo(token).has_value(); }

  // Each call makes a newer membership.
  void SetMembers(std::vector<Member> members);
  void Pass(absl::Duration time);  // Ticks afterwards.

  int64_t value() const { return value_; }
  size_t gradients_kept() const { return gradients_.size(); }
  size_t values_kept() const { return kept_values_.size(); }
  bool previous_held() const { return previous_.has_value(); }
  const ShardCore& core() const { return core_; }
  ShardCore& core() { return core_; }
  Instant now() const { return now_; }

  // How long a Pull without its own deadline waits.
  static constexpr absl::Duration kPatience = absl::Seconds(30);

 private:
  void CarryOut(const Actions& actions, int64_t incoming);

  ShardCore core_;
  Instant now_;
  uint64_t next_token_ = 1;
  uint64_t membership_generation_ = 0;
  int64_t value_ = 0;
  std::optional<int64_t> previous_;
  std::map<GradientId, int64_t> gradients_;
  std::map<Version, int64_t> kept_values_;
  std::map<PushToken, ReplyPush> push_replies_;
  std::map<PullToken, Answer> answers_;
  int64_t applied_count_ = 0;

  struct Recorded {
    ShardRecord record;
    int64_t gradient = 0;
  };
  std::vector<Recorded> records_;  // From position 1 on.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_TESTING_SHARD_FIXTURE_H_
