#include "scheduler/core/work/sample_leases.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/metrics/score_counts.h"
#include "common/testing/status_matchers.h"

namespace capstan::scheduler::sample_leases_test {
namespace {

SampleLeases Training(int64_t count, int64_t batch, int workers) {
  return SampleLeases(
      {.use = SampleLeases::Use::kTrain, .count = count, .batch_size = batch, .workers = workers});
}

SampleLeases Evaluation(int64_t count, int64_t batch) {
  return SampleLeases(
      {.use = SampleLeases::Use::kEvaluate, .count = count, .batch_size = batch, .workers = 2});
}

SampleReport Done(const SampleLease& lease, int64_t position) {
  return {.lease = lease.id, .position_done = position};
}

TEST_CASE("Sample leases: sizes shrink towards the end and every position is granted once",
          "[scheduler][core]") {
  SampleLeases leases = Training(60'000, 64, 2);
  int64_t end = 0;
  int64_t last_size = int64_t{1} << 40;
  while (const auto lease = leases.Grant(Rank(0))) {
    CHECK(lease->positions.begin == end);
    CHECK(lease->positions.size() <= last_size);
    CHECK(lease->positions.size() <= 64 * 64);
    if (lease->positions.end != 60'000) CHECK(lease->positions.size() % 64 == 0);
    last_size = lease->positions.size();
    end = lease->positions.end;
    REQUIRE_OK(leases.Report(Rank(0), Done(*lease, lease->positions.end)));
  }
  CHECK(end == 60'000);
  CHECK(last_size <= 64);
  CHECK(leases.complete());
  CHECK(leases.positions_done() == 60'000);
  CHECK(leases.batches_done() == 938);
}

TEST_CASE("Sample leases: a task of known pace gets its share of the rest, for as long as is asked",
          "[scheduler][core]") {
  SampleLeases leases = Training(600'000, 10, 4);
  const SampleLeases::Pace fast{.share = 0.5, .positions_max = 1'000'000};
  const SampleLeases::Pace slow{.share = 0.01, .positions_max = 1'000'000};
  CHECK(leases.Grant(Rank(0), fast)->positions.size() == 150'000);
  CHECK(leases.Grant(Rank(0), fast)->positions.size() == 112'500 / 10 * 10);
  CHECK(leases.Grant(Rank(1), slow)->positions.size() == 1'680);
  const SampleLeases::Pace limited{.share = 1, .positions_max = 20'000};
  CHECK(leases.Grant(Rank(2), limited)->positions.size() == 20'000);
  // sim --seed=3210229359: after the death of the others the last task took all of the rest, though
  // it needed a minute for each batch.
  const SampleLeases::Pace least{.share = 1, .positions_max = 3};
  CHECK(leases.Grant(Rank(2), least)->positions.size() == 10);
  CHECK(leases.Grant(Rank(3))->positions.size() == 64 * 10);
}

TEST_CASE("Sample leases: a dead worker's rest goes to the others, what it reported done does not",
          "[scheduler][core]") {
  SampleLeases leases = Training(100, 10, 1);
  const SampleLease first = *leases.Grant(Rank(0));   // [0, 20)
  const SampleLease second = *leases.Grant(Rank(0));  // [20, 40)
  CHECK(first.positions == Range{0, 20});
  REQUIRE_OK(leases.Report(Rank(0), Done(first, 10)));
  leases.Return(Rank(0));
  CHECK(leases.HeldBy(Rank(0)).empty());
  const SampleLease again = *leases.Grant(Rank(1));
  CHECK(again.positions == Range{10, 30});
  CHECK(again.id > second.id);
  CHECK(leases.positions_done() == 10);
}

TEST_CASE("Sample leases: repeated, older and late reports change nothing", "[scheduler][core]") {
  SampleLeases leases = Training(100, 10, 1);
  const SampleLease lease = *leases.Grant(Rank(0));
  REQUIRE_OK(leases.Report(Rank(0), Done(lease, 10)));
  REQUIRE_OK(leases.Report(Rank(0), Done(lease, 0)));
  REQUIRE_OK(leases.Report(Rank(0), Done(lease, 10)));
  CHECK(leases.positions_done() == 10);
  REQUIRE_OK(leases.Report(Rank(0), Done(lease, 20)));
  REQUIRE_OK(leases.Report(Rank(0), Done(lease, 20)));
  CHECK(leases.positions_done() == 20);

  const SampleLease other = *leases.Grant(Rank(0));
  leases.Return(Rank(0));
  REQUIRE_OK(leases.Report(Rank(0), Done(other, other.positions.end)));
  CHECK(leases.positions_done() == 20);
}

TEST_CASE("Sample leases: reports of another's lease change nothing, impossible ones are refused",
          "[scheduler][core]") {
  SampleLeases leases = Training(100, 10, 1);
  const SampleLease lease = *leases.Grant(Rank(0));
  REQUIRE_OK(leases.Report(Rank(1), Done(lease, 20)));
  CHECK(leases.positions_done() == 0);
  CHECK_STATUS(leases.Report(Rank(0), Done(lease, 21)), absl::StatusCode::kInvalidArgument,
               "position_done 21 is outside [0, 20]");
  CHECK_STATUS(leases.Report(Rank(0), {.lease = LeaseId(7)}), absl::StatusCode::kInvalidArgument,
               "sample lease 7 was never granted; the newest is 1");
}

TEST_CASE("Sample leases: nothing to do is complete at once", "[scheduler][core]") {
  SampleLeases leases = Training(0, 10, 1);
  CHECK(leases.complete());
  CHECK_FALSE(leases.Grant(Rank(0)).has_value());
}

TEST_CASE("Sample leases: evaluation is cut the same way whoever dies, and each result counts once",
          "[scheduler][core]") {
  SampleLeases leases = Evaluation(400, 10);  // [0, 160) [160, 320) [320, 400)
  const SampleLease first = *leases.Grant(Rank(0));
  const SampleLease second = *leases.Grant(Rank(1));
  CHECK(first.positions == Range{0, 160});
  REQUIRE_OK(leases.Report(Rank(0), {.lease = first.id, .position_done = 150}));
  leases.Return(Rank(0));
  CHECK(leases.positions_done() == 0);
  const SampleLease again = *leases.Grant(Rank(1));
  CHECK(again.positions == Range{0, 160});
  const SampleLease third = *leases.Grant(Rank(1));
  CHECK(third.positions == Range{320, 400});

  const SampleReport result{third.id, 400, 8.0, 60};
  REQUIRE_OK(leases.Report(Rank(1), result));
  REQUIRE_OK(leases.Report(Rank(1), result));
  REQUIRE_OK(leases.Report(Rank(1), {second.id, 320, 16.0, 100}));
  REQUIRE_OK(leases.Report(Rank(1), {again.id, 160, 4.0, 120}));
  // The first incarnation's result comes late.
  REQUIRE_OK(leases.Report(Rank(0), {first.id, 160, 99.0, 160}));
  CHECK(leases.complete());
  CHECK(leases.Sum().samples == 400);
  CHECK(leases.Sum().loss == 28.0);
  CHECK(leases.Sum().correct == 280);
}

// Returns scores of `count` samples, half of which are clicks.
ScoreCounts ScoresOf(int64_t count, float from) {
  ScoreCounts scores;
  for (int64_t i = 0; i < count; ++i) scores.Add(from + static_cast<float>(i), i % 2 == 1);
  return scores;
}

TEST_CASE("Sample leases: each finished lease's scores count once", "[scheduler][core]") {
  SampleLeases leases = Evaluation(20, 1);  // [0, 16) [16, 20)
  const SampleLease dead = *leases.Grant(Rank(0));
  const SampleLease other = *leases.Grant(Rank(1));
  const SampleReport early{dead.id, 16, 1.0, 16, ScoresOf(16, 50)};
  leases.Return(Rank(0));
  REQUIRE_OK(leases.Report(Rank(0), early));  // The report comes after its sender's death.
  const SampleLease again = *leases.Grant(Rank(1));
  const SampleReport second{other.id, 20, 1.0, 4, ScoresOf(4, -7)};
  REQUIRE_OK(leases.Report(Rank(1), second));
  REQUIRE_OK(leases.Report(Rank(1), second));
  // Scores of an unfinished lease are ignored without a check.
  REQUIRE_OK(leases.Report(Rank(1), {again.id, 8, 1.0, 8, ScoresOf(3, 0)}));
  CHECK(leases.scores() == ScoresOf(4, -7));
  REQUIRE_OK(leases.Report(Rank(1), {again.id, 16, 1.0, 16, ScoresOf(16, 0)}));
  ScoreCounts all = ScoresOf(16, 0);
  all.Merge(ScoresOf(4, -7));
  CHECK(leases.complete());
  CHECK(leases.scores() == all);
}

TEST_CASE("Sample leases: scores of more or fewer samples than the lease has are refused",
          "[scheduler][core]") {
  SampleLeases leases = Evaluation(10, 1);
  const SampleLease lease = *leases.Grant(Rank(0));
  for (const int64_t count : {9, 11}) {
    CHECK_STATUS(leases.Report(Rank(0), {lease.id, 10, 1.0, 10, ScoresOf(count, 0)}),
                 absl::StatusCode::kInvalidArgument,
                 absl::StrCat("sample lease 1: scores of ", count, " samples, expected its 10"));
  }
  CHECK(leases.scores().empty());
  CHECK_FALSE(leases.complete());
  // A job that does not predict clicks sends none.
  REQUIRE_OK(leases.Report(Rank(0), {lease.id, 10, 1.0, 10}));
  CHECK(leases.complete());
}

TEST_CASE("Sample leases: a position is leased alone, once, wherever it lies",
          "[scheduler][core]") {
  SampleLeases leases = Training(5, 1, 1);
  for (const int64_t position : {2, 0, 4, 3, 1}) {
    REQUIRE(leases.GrantAt(Rank(0), position).has_value());
    CHECK(leases.HeldBy(Rank(0)).back().positions == Range{position, position + 1});
    CHECK_FALSE(leases.GrantAt(Rank(1), position).has_value());
    CHECK_FALSE(leases.IsDone(position));
  }
  CHECK_FALSE(leases.has_ungranted());
  CHECK_FALSE(leases.GrantAt(Rank(0), 5).has_value());
  REQUIRE_OK(leases.Report(Rank(0), Done({LeaseId(1), {2, 3}}, 3)));
  CHECK(leases.IsDone(2));
  CHECK_FALSE(leases.IsDone(3));
  leases.Return(Rank(0));
  CHECK(leases.GrantAt(Rank(1), 3)->positions == Range{3, 4});
}

}  // namespace
}  // namespace capstan::scheduler::sample_leases_test
