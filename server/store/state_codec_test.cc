#include "server/store/state_codec.h"

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "common/types/job_limits.h"

namespace capstan::server::state_codec_test {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

ShardRecord Push() {
  return {.kind = ShardRecord::Kind::kPush,
          .position = Position(9),
          .rank = Rank(3),
          .incarnation = Incarnation(4),
          .iteration = Iteration(5),
          .sequence = Sequence(7),
          .sequence_low_water = Sequence(6),
          .membership = {}};
}

TEST_CASE("State codec: records of every kind survive the round trip", "[server]") {
  const Member member{.rank = Rank(1), .incarnation = Incarnation(2), .active = true};
  const ShardRecord records[] = {
      Push(),
      {.kind = ShardRecord::Kind::kUpdate,
       .position = Position(1),
       .version = Version(8),
       .membership = {}},
      {.kind = ShardRecord::Kind::kMembership,
       .position = Position(2),
       .membership = {.generation = Generation(3),
                      .members = {member},
                      .learning_rate_factor = 0.125,
                      .clock_seconds = 40'500}},
      {.kind = ShardRecord::Kind::kBarrier, .position = Position(3), .membership = {}}};
  const std::vector<float> gradient = {1.5f, -2.0f};
  for (const ShardRecord& record : records) {
    const v1::ShardRecord encoded = EncodeRecord(record, Gradient(gradient));
    REQUIRE_OK_AND_ASSIGN(const ShardRecord decoded, DecodeRecord(encoded));
    CHECK(decoded == record);
    std::vector<float> copy;
    const absl::Span<const float> floats = FloatsOf(encoded.values(), &copy);
    CHECK(std::vector<float>(floats.begin(), floats.end()) == gradient);
  }
}

TEST_CASE("State codec: a state survives the round trip", "[server]") {
  const ShardCoreState state{
      .position = Position(12),
      .version = Version(10),
      .previous_readable = true,
      .membership_generation = Generation(4),
      .pushes_recorded = 10,
      .pushes_duplicate = 2,
      .incarnation_floor = Incarnation(3),
      .learning_rate_factor = 0.5,
      .ticks = {{.clock_seconds = 40'500, .version = Version(7)},
                {.clock_seconds = 81'000, .version = Version(9)}},
      .push_marks = {{.rank = Rank(0),
                      .incarnation = Incarnation(5),
                      .listed = true,
                      .low_water = Sequence(3),
                      .applied = {Sequence(4), Sequence(9)}},
                     {.rank = Rank(2), .incarnation = Incarnation(6), .applied = {}}},
      .members_known = true,
      .members = {{.rank = Rank(0),
                   .incarnation = Incarnation(5),
                   .finished = Iteration(7),
                   .active = true,
                   .start_iteration = Iteration(1)}},
      .early = {{.rank = Rank(2), .incarnation = Incarnation(6), .finished = Iteration(1)}}};
  REQUIRE_OK_AND_ASSIGN(const ShardCoreState decoded, DecodeState(EncodeState(state), 12));
  CHECK(decoded == state);
}

TEST_CASE("State codec: numbers out of range are refused with their name", "[server]") {
  v1::ShardRecord record = EncodeRecord(Push(), {});
  SECTION("no kind") {
    record.clear_push();
    CHECK_STATUS(DecodeRecord(record), kInvalid, "record 9: expected a push");
  }
  SECTION("rank") {
    record.mutable_push()->set_rank(kWorkersMax);
    CHECK_STATUS(DecodeRecord(record), kInvalid, "rank 4096: expected 0 to 4095");
  }
  SECTION("iteration") {
    record.mutable_push()->set_iteration(-1);
    CHECK_STATUS(DecodeRecord(record), kInvalid, "iteration -1: expected 0 to");
  }
  SECTION("sequence") {
    record.mutable_push()->set_sequence_low_water(8);
    CHECK_STATUS(DecodeRecord(record), kInvalid, "sequence 7, low water 8");
  }
  v1::ShardState state;
  SECTION("a learning rate's factor") {
    state.set_learning_rate_factor(1.5);
    CHECK_STATUS(DecodeState(state, 0), kInvalid, "learning_rate_factor 1.5: expected a number in");
    v1::Membership membership;
    // Older versions did not write it.
    CHECK(DecodeMembership(membership)->learning_rate_factor == 1);
    membership.set_learning_rate_factor(-1);
    CHECK_STATUS(DecodeMembership(membership), kInvalid, "learning_rate_factor -1");
  }
  SECTION("a membership's clock") {
    v1::Membership membership;
    membership.set_clock_seconds(-1);
    CHECK_STATUS(DecodeMembership(membership), kInvalid, "clock_seconds -1: expected 0 to");
  }
  SECTION("ranks out of order") {
    state.add_push_marks()->set_rank(1);
    state.add_push_marks()->set_rank(1);
    CHECK_STATUS(DecodeState(state, 0), kInvalid, "rank 1 comes after rank 1");
  }
  SECTION("marks out of order") {
    v1::PushMarks* marks = state.add_push_marks();
    marks->set_low_water(5);
    marks->add_applied(4);
    CHECK_STATUS(DecodeState(state, 0), kInvalid, "applied sequence 4, expected at least 5");
  }
  SECTION("a clock below zero") {
    state.add_early()->set_finished(-3);
    CHECK_STATUS(DecodeState(state, 0), kInvalid, "finished -3");
  }
  SECTION("a clock that starts outside of all iterations") {
    const int64_t start = GENERATE(INT64_MIN, -1, INT64_MAX);
    state.add_members()->set_start_iteration(start);
    CHECK_STATUS(DecodeState(state, 0), kInvalid,
                 absl::StrCat("start_iteration ", start, ": expected 0 to 4611686018427387904"));
  }
}

}  // namespace
}  // namespace capstan::server::state_codec_test
