#include "server/core/duplicate_filter.h"

#include "common/testing/status_matchers.h"

namespace capstan::server::duplicate_filter_test {
namespace {

using absl::StatusCode;

PushHead PushOf(int32_t rank, uint64_t incarnation, uint64_t sequence, uint64_t low_water = 0) {
  return {.token = {},
          .rank = Rank(rank),
          .incarnation = Incarnation(incarnation),
          .iteration = Iteration(0),
          .sequence = Sequence(sequence),
          .sequence_low_water = Sequence(low_water)};
}

// Checks and, if it is new, records the push, as a shard does.
absl::StatusOr<PushOutcome> Take(DuplicateFilter& filter, const PushHead& push) {
  absl::StatusOr<PushOutcome> outcome = filter.Check(push);
  if (outcome.ok() && *outcome == PushOutcome::kRecorded) {
    filter.Record(push.rank, push.incarnation, push.sequence, push.sequence_low_water);
  }
  return outcome;
}

Membership Members(uint64_t generation, std::vector<std::pair<int32_t, uint64_t>> incarnations) {
  Membership membership{.generation = Generation(generation), .members = {}};
  for (const auto& [rank, incarnation] : incarnations) {
    membership.members.push_back({.rank = Rank(rank),
                                  .incarnation = Incarnation(incarnation),
                                  .active = true,
                                  .start_iteration = {}});
  }
  return membership;
}

#define CHECK_OUTCOME(expression, expected)               \
  do {                                                    \
    const absl::StatusOr<PushOutcome> got = (expression); \
    REQUIRE_OK(got);                                      \
    CHECK(*got == (expected));                            \
  } while (false)

TEST_CASE("Duplicate filter: a repeated sequence is a duplicate, in any order", "[server][core]") {
  DuplicateFilter filter;
  for (const uint64_t sequence : {1, 3, 2, 5}) {
    CHECK_OUTCOME(Take(filter, PushOf(0, 1, sequence)), PushOutcome::kRecorded);
  }
  for (const uint64_t sequence : {1, 2, 3, 5}) {
    CHECK_OUTCOME(Take(filter, PushOf(0, 1, sequence)), PushOutcome::kDuplicate);
  }
  CHECK_OUTCOME(Take(filter, PushOf(0, 1, 4)), PushOutcome::kRecorded);
}

TEST_CASE("Duplicate filter: ranks do not share sequences", "[server][core]") {
  DuplicateFilter filter;
  CHECK_OUTCOME(Take(filter, PushOf(0, 1, 1)), PushOutcome::kRecorded);
  CHECK_OUTCOME(Take(filter, PushOf(1, 2, 1)), PushOutcome::kRecorded);
}

TEST_CASE("Duplicate filter: a higher incarnation starts afresh and fences the lower one off",
          "[server][core]") {
  DuplicateFilter filter;
  CHECK_OUTCOME(Take(filter, PushOf(0, 4, 1)), PushOutcome::kRecorded);
  CHECK_OUTCOME(Take(filter, PushOf(0, 6, 1)), PushOutcome::kRecorded);
  CHECK_STATUS(Take(filter, PushOf(0, 4, 2)), StatusCode::kAborted,
               "incarnation 4 of rank 0 is fenced off: expected 6 or higher");
}

TEST_CASE("Duplicate filter: pushes in order leave no marks", "[server][core]") {
  DuplicateFilter filter;
  for (uint64_t sequence = 1; sequence <= 10'000; ++sequence) {
    CHECK_OUTCOME(Take(filter, PushOf(0, 1, sequence)), PushOutcome::kRecorded);
  }
  CHECK(filter.marks() == 0);
  CHECK_OUTCOME(Take(filter, PushOf(0, 1, 7)), PushOutcome::kDuplicate);
}

TEST_CASE("Duplicate filter: the client's low-water mark forgets a gap and what lies below it",
          "[server][core]") {
  DuplicateFilter filter;
  // Sequence 1 was refused for its content and never comes again.
  for (uint64_t sequence = 2; sequence <= 100; ++sequence) {
    CHECK_OUTCOME(Take(filter, PushOf(0, 1, sequence, 1)), PushOutcome::kRecorded);
  }
  CHECK(filter.marks() == 99);
  CHECK_OUTCOME(Take(filter, PushOf(0, 1, 101, 90)), PushOutcome::kRecorded);
  CHECK(filter.marks() == 0);
  CHECK_OUTCOME(Take(filter, PushOf(0, 1, 50, 40)), PushOutcome::kDuplicate);
  CHECK_OUTCOME(Take(filter, PushOf(0, 1, 1, 1)), PushOutcome::kDuplicate);
}

TEST_CASE("Duplicate filter: a sequence beyond the window is refused by name", "[server][core]") {
  DuplicateFilter filter;
  CHECK_OUTCOME(Take(filter, PushOf(3, 1, 1024)), PushOutcome::kRecorded);
  CHECK_STATUS(
      Take(filter, PushOf(3, 1, 1025)), StatusCode::kResourceExhausted,
      "sequence 1025 of rank 3 is 1024 beyond the low-water mark 1: expected less than 1024");
  CHECK_OUTCOME(Take(filter, PushOf(3, 1, 1025, 2)), PushOutcome::kRecorded);
}

TEST_CASE("Duplicate filter: sequence numbers that cannot be are refused", "[server][core]") {
  DuplicateFilter filter;
  CHECK_STATUS(filter.Check(PushOf(0, 1, 0)), StatusCode::kInvalidArgument,
               "sequence 0: expected 1 to");
  CHECK_STATUS(filter.Check(PushOf(0, 1, UINT64_MAX)), StatusCode::kInvalidArgument,
               "sequence 18446744073709551615: expected 1 to");
  CHECK_STATUS(filter.Check(PushOf(0, 1, 7, 9)), StatusCode::kInvalidArgument,
               "sequence_low_water 9: expected at most the push's own sequence 7");
}

TEST_CASE("Duplicate filter: a dead incarnation is forgotten, and its late retry is refused",
          "[server][core]") {
  DuplicateFilter filter;
  filter.SetMembership(Members(1, {{0, 1}, {1, 2}}));
  CHECK_OUTCOME(Take(filter, PushOf(1, 2, 5)), PushOutcome::kRecorded);
  filter.SetMembership(Members(2, {{0, 1}}));
  CHECK(filter.marks() == 0);
  CHECK_STATUS(Take(filter, PushOf(1, 2, 5)), StatusCode::kAborted,
               "incarnation 2 of rank 1 is fenced off: expected 3 or higher");
  CHECK_OUTCOME(Take(filter, PushOf(1, 9, 1)), PushOutcome::kRecorded);
}

TEST_CASE("Duplicate filter: a membership fences incarnations below the listed ones",
          "[server][core]") {
  DuplicateFilter filter;
  CHECK_OUTCOME(Take(filter, PushOf(0, 1, 1)), PushOutcome::kRecorded);
  filter.SetMembership(Members(1, {{0, 3}}));
  CHECK_STATUS(Take(filter, PushOf(0, 1, 2)), StatusCode::kAborted, "expected 3 or higher");
  CHECK_OUTCOME(Take(filter, PushOf(0, 3, 1)), PushOutcome::kRecorded);
}

TEST_CASE(
    "Duplicate filter: an incarnation that pushed before it was listed survives older memberships",
    "[server][core]") {
  DuplicateFilter filter;
  filter.SetMembership(Members(1, {{0, 1}}));
  CHECK_OUTCOME(Take(filter, PushOf(1, 5, 1)), PushOutcome::kRecorded);
  CHECK_OUTCOME(Take(filter, PushOf(0, 4, 1)), PushOutcome::kRecorded);
  filter.SetMembership(Members(2, {{0, 1}}));
  CHECK_OUTCOME(Take(filter, PushOf(1, 5, 1)), PushOutcome::kDuplicate);
  CHECK_OUTCOME(Take(filter, PushOf(0, 4, 1)), PushOutcome::kDuplicate);
}

TEST_CASE("Duplicate filter: below the floor every incarnation is fenced, of whatever rank",
          "[server][core]") {
  DuplicateFilter filter;
  CHECK_OUTCOME(Take(filter, PushOf(0, 4, 3)), PushOutcome::kRecorded);
  Membership membership = Members(1, {});
  membership.incarnation_floor = Incarnation(6);
  filter.SetMembership(membership);
  filter.SetMembership(Members(2, {{2, 7}}));  // The floor never falls.
  CHECK(filter.marks() == 0);
  DuplicateFilter restored;
  restored.Restore(filter.floor(), filter.Save());
  for (DuplicateFilter* each : {&filter, &restored}) {
    CHECK_STATUS(Take(*each, PushOf(0, 4, 4)), StatusCode::kAborted,
                 "incarnation 4 of rank 0 is fenced off: expected 6 or higher");
    CHECK_STATUS(Take(*each, PushOf(1, 5, 1)), StatusCode::kAborted, "expected 6 or higher");
    CHECK_STATUS(Take(*each, PushOf(2, 6, 1)), StatusCode::kAborted, "expected 7 or higher");
    CHECK_OUTCOME(Take(*each, PushOf(1, 6, 1)), PushOutcome::kRecorded);
  }
  filter.Record(Rank(3), Incarnation(5), Sequence(1), Sequence(1));  // From a log that is wrong.
  CHECK_OUTCOME(Take(filter, PushOf(3, 6, 1)), PushOutcome::kRecorded);
}

}  // namespace
}  // namespace capstan::server::duplicate_filter_test
