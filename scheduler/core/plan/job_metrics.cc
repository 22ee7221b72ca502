#include "scheduler/core/plan/job_metrics.h"

#include <algorithm>
#include <utility>

namespace capstan::scheduler {
namespace {

void AddCounts(const std::vector<int64_t>& counts, std::vector<int64_t>& sum) {
  if (sum.size() < counts.size()) sum.resize(counts.size(), 0);
  for (size_t i = 0; i < counts.size(); ++i) sum[i] = AddCount(sum[i], counts[i]);
}

std::vector<int64_t> Difference(const std::vector<int64_t>& counts,
                                const std::vector<int64_t>& known) {
  std::vector<int64_t> difference = counts;
  const size_t common = std::min(counts.size(), known.size());
  for (size_t i = 0; i < common; ++i) difference[i] = std::max<int64_t>(0, counts[i] - known[i]);
  return difference;
}

void AddSums(const JobMetrics::Sums& difference, JobMetrics::Sums& sums) {
  sums.samples = AddCount(sums.samples, difference.samples);
  sums.loss += difference.loss;
  sums.correct = AddCount(sums.correct, difference.correct);
  AddCounts(difference.staleness_counts, sums.staleness_counts);
  sums.rows_cached = AddCount(sums.rows_cached, difference.rows_cached);
  sums.rows_pulled = AddCount(sums.rows_pulled, difference.rows_pulled);
}

}  // namespace

void JobMetrics::Add(const TaskTotals& totals, TaskTotals& known, Instant now) {
  if (totals.samples < known.samples) return;
  const Sums difference{
      .samples = totals.samples - known.samples,
      .loss = totals.loss - known.loss,
      .correct = totals.correct - known.correct,
      .staleness_counts = Difference(totals.staleness_counts, known.staleness_counts),
      .rows_cached = std::max<int64_t>(0, totals.rows_cached - known.rows_cached),
      .rows_pulled = std::max<int64_t>(0, totals.rows_pulled - known.rows_pulled)};
  std::vector<int64_t> staleness_counts = totals.staleness_counts;
  if (staleness_counts.size() < known.staleness_counts.size()) {
    staleness_counts.resize(known.staleness_counts.size(), 0);
  }
  for (size_t i = 0; i < known.staleness_counts.size(); ++i) {
    staleness_counts[i] = std::max(staleness_counts[i], known.staleness_counts[i]);
  }
  const TaskTotals before = std::exchange(known, totals);
  known.staleness_counts = std::move(staleness_counts);
  known.rows_cached = std::max(known.rows_cached, before.rows_cached);
  known.rows_pulled = std::max(known.rows_pulled, before.rows_pulled);
  AddSums(difference, epoch_);
  AddSums(difference, report_);
  AddCounts(difference.staleness_counts, staleness_counts_);
  samples_ = AddCount(samples_, difference.samples);
  rows_cached_ = AddCount(rows_cached_, difference.rows_cached);
  rows_pulled_ = AddCount(rows_pulled_, difference.rows_pulled);
  if (difference.samples == 0) return;
  if (window_.empty() || now - window_.back().begin >= kRateBucket) window_.push_back({now, 0});
  window_.back().samples = AddCount(window_.back().samples, difference.samples);
  while (now - window_.front().begin > kRateWindow) window_.pop_front();
}

JobMetrics::Sums JobMetrics::TakeReport() { return std::exchange(report_, {}); }

double JobMetrics::SamplesPerSecond(Instant now) const {
  // The first bucket only marks the beginning of the window, because its samples were trained
  // before.
  int64_t samples = 0;
  bool first = true;
  Instant begin;
  for (const Bucket& bucket : window_) {
    if (now - bucket.begin > kRateWindow) continue;
    if (first) {
      begin = bucket.begin;
    } else {
      samples = AddCount(samples, bucket.samples);
    }
    first = false;
  }
  const double seconds = first ? 0 : absl::ToDoubleSeconds(now - begin);
  return seconds <= 0 ? 0 : static_cast<double>(samples) / seconds;
}

}  // namespace capstan::scheduler
