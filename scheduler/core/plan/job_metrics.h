// JobMetrics: a job's training figures, summed from the totals that its tasks report.
//
// A task reports totals since its process started, so a lost or repeated report does no harm: each
// report adds the difference to the totals that were added before.
// Thread safety: thread-compatible.
// Invariant: counts never decrease, except by StartEpoch and TakeReport.
#ifndef CAPSTAN_SCHEDULER_CORE_PLAN_JOB_METRICS_H_
#define CAPSTAN_SCHEDULER_CORE_PLAN_JOB_METRICS_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/time/time.h"
#include "common/time/instant.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

class JobMetrics {
 public:
  static constexpr absl::Duration kRateWindow = absl::Seconds(5);
  static constexpr absl::Duration kRateBucket = absl::Milliseconds(100);

  // Sums over trained samples.
  struct Sums {
    int64_t samples = 0;
    double loss = 0;
    int64_t correct = 0;
    std::vector<int64_t> staleness_counts;
    int64_t rows_cached = 0;
    int64_t rows_pulled = 0;
    double mean_loss() const { return samples == 0 ? 0 : loss / static_cast<double>(samples); }
    double accuracy() const {
      return samples == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(samples);
    }
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(samples, loss, correct, staleness_counts, rows_cached, rows_pulled);
      CheckLoaded(archive, [this] {
        return CheckTotals(samples, correct, staleness_counts, rows_cached, rows_pulled);
      });
    }
  };

  // Adds a task's totals. `known`: the newest totals that were added for this incarnation; updated.
  // Totals of fewer samples than known are an older report and change nothing.
  void Add(const TaskTotals& totals, TaskTotals& known, Instant now);

  void StartEpoch() { epoch_ = {}; }
  Sums TakeReport();  // The sums since the last call.

  const Sums& epoch() const { return epoch_; }
  const std::vector<int64_t>& staleness_counts() const { return staleness_counts_; }
  int64_t rows_cached() const { return rows_cached_; }
  int64_t rows_pulled() const { return rows_pulled_; }
  int64_t samples() const { return samples_; }  // Trained in all incarnations, repeats included.
  double SamplesPerSecond(Instant now) const;   // Over the last kRateWindow.

  // ---- durable state, in the form of scheduler/store/archive.h
  // All but the rate, which begins anew.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(epoch_, report_, staleness_counts_, samples_, rows_cached_, rows_pulled_);
    CheckLoaded(archive, [this] {
      return CheckTotals(samples_, /*correct=*/0, staleness_counts_, rows_cached_, rows_pulled_);
    });
  }

 private:
  struct Bucket {
    Instant begin;
    int64_t samples = 0;
  };

  Sums epoch_;
  Sums report_;
  std::vector<int64_t> staleness_counts_;
  int64_t samples_ = 0;
  int64_t rows_cached_ = 0;
  int64_t rows_pulled_ = 0;
  std::deque<Bucket> window_;  // At most kRateWindow / kRateBucket + 1.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLAN_JOB_METRICS_H_
