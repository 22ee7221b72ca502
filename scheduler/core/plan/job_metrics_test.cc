#include "scheduler/core/plan/job_metrics.h"

#include <catch2/catch.hpp>

namespace capstan::scheduler::job_metrics_test {
namespace {

Instant At(double seconds) { return Instant::FromOrigin(absl::Seconds(seconds)); }

TaskTotals Totals(int64_t samples, double loss, int64_t correct,
                  std::vector<int64_t> staleness = {}) {
  return {samples, loss, correct, std::move(staleness)};
}

TEST_CASE("Job metrics: repeated and older totals add nothing, lost ones are made up for",
          "[scheduler][core]") {
  JobMetrics metrics;
  TaskTotals known;
  metrics.Add(Totals(10, 20.0, 4, {10}), known, At(0));
  metrics.Add(Totals(10, 20.0, 4, {10}), known, At(1));
  metrics.Add(Totals(30, 50.0, 16, {15, 15}), known, At(2));
  metrics.Add(Totals(20, 40.0, 9, {12, 8}), known, At(3));
  CHECK(metrics.epoch().samples == 30);
  CHECK(metrics.epoch().mean_loss() == Approx(50.0 / 30));
  CHECK(metrics.epoch().accuracy() == Approx(16.0 / 30));
  CHECK(metrics.staleness_counts() == std::vector<int64_t>{15, 15});
}

TEST_CASE("Job metrics: rows that were kept are counted once", "[scheduler][core]") {
  JobMetrics metrics;
  TaskTotals known;
  metrics.Add({.samples = 10, .staleness_counts = {}, .rows_cached = 5, .rows_pulled = 7}, known,
              At(0));
  metrics.Add({.samples = 10, .staleness_counts = {}, .rows_cached = 9, .rows_pulled = 8}, known,
              At(1));
  metrics.Add({.samples = 10, .staleness_counts = {}, .rows_cached = 6, .rows_pulled = 7}, known,
              At(2));  // This report is late.
  CHECK(metrics.rows_cached() == 9);
  CHECK(metrics.rows_pulled() == 8);
  CHECK(metrics.TakeReport().rows_cached == 9);
}

TEST_CASE("Job metrics: a new incarnation counts from zero, beside what its rank did before",
          "[scheduler][core]") {
  JobMetrics metrics;
  TaskTotals first;
  TaskTotals second;
  metrics.Add(Totals(10, 1.0, 1), first, At(0));
  metrics.Add(Totals(5, 1.0, 1), second, At(1));
  CHECK(metrics.samples() == 15);
}

TEST_CASE("Job metrics: epochs and reports have their own sums", "[scheduler][core]") {
  JobMetrics metrics;
  TaskTotals known;
  metrics.Add(Totals(10, 20.0, 4), known, At(0));
  CHECK(metrics.TakeReport().samples == 10);
  metrics.StartEpoch();
  metrics.Add(Totals(15, 25.0, 9), known, At(1));
  CHECK(metrics.epoch().samples == 5);
  CHECK(metrics.epoch().accuracy() == 1.0);
  CHECK(metrics.TakeReport().loss == 5.0);
  CHECK(metrics.TakeReport().samples == 0);
}

TEST_CASE("Job metrics: the rate is over the last seconds only", "[scheduler][core]") {
  JobMetrics metrics;
  TaskTotals known;
  CHECK(metrics.SamplesPerSecond(At(0)) == 0);
  for (int i = 1; i <= 100; ++i) metrics.Add(Totals(i * 100, 0, 0), known, At(i * 0.5));
  CHECK(metrics.SamplesPerSecond(At(50)) == Approx(200));
  // A pause of three seconds without reports lowers the rate.
  CHECK(metrics.SamplesPerSecond(At(53)) < 200);
  CHECK(metrics.SamplesPerSecond(At(60)) == 0);
}

}  // namespace
}  // namespace capstan::scheduler::job_metrics_test
