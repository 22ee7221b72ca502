// SampleLeases: who trains (SSP, ASP) or evaluates which range of samples in one phase.
//
// Training leases shrink towards the end (guided self-scheduling: Polychronopoulos and Kuck, 1987),
// so that fast tasks take more and all finish together. Once the pace of all tasks is known, leases
// are larger, in proportion to each task's share of the work (weighted factoring: Hummel et al.,
// 1996), so that a task can continue for a while if nothing more is granted; a slow task holds no
// more than it does in that time, however few other tasks there are when it asks. A dead task's
// leases go back: when training, only what it had not reported done. Evaluation leases have one
// fixed size and go back whole, so the partition, and with it the order of summation, does not
// depend on who evaluated what.
//
//   ungranted --Grant--> held --Report(end)--> done (its result is kept)
//       ^------Return-----/
//
// Thread safety: thread-compatible.
// Invariants: (1) every position of [begin, begin + count) is in exactly one of ungranted, held and
//                 done.
//             (2) a lease id is granted once; ids grow.
#ifndef CAPSTAN_SCHEDULER_CORE_WORK_SAMPLE_LEASES_H_
#define CAPSTAN_SCHEDULER_CORE_WORK_SAMPLE_LEASES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/metrics/evaluation.h"
#include "common/metrics/score_counts.h"
#include "common/planted/planted_bug.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

bool Cover(absl::Span<const Range> ranges, int64_t position);  // One of them contains it.

class SampleLeases {
 public:
  enum class Use { kTrain, kEvaluate };
  friend constexpr Use LastOf(Use) { return Use::kEvaluate; }

  // Largest training lease of a task of unknown pace.
  static constexpr int64_t kTrainBatchesMax = 64;
  static constexpr int64_t kEvaluateBatches = 16;  // Every evaluation lease but the last.
  // At an unknown pace a training lease is 1/(this * workers) of the rest.
  static constexpr int64_t kSharesPerWorker = 4;
  // At a known pace it is 1/this of the task's share of the rest.
  static constexpr double kSharesAtPace = 2;

  // How fast a task is.
  struct Pace {
    double share = 0;           // Share of the work of all tasks, 0 < share <= 1. 0: not known.
    int64_t positions_max = 0;  // Limit for one lease, which has at least one batch.
  };

  struct Options {
    Use use = Use::kTrain;
    int64_t count = 0;       // Positions, >= 0.
    int64_t batch_size = 1;  // >= 1.
    int workers = 1;         // The workers that share the work, >= 1.
    LeaseId first_id{1};     // Ids of this phase count up from here.
    int64_t begin = 0;       // The first position: all are [begin, begin + count).
    int64_t scores = 1;      // Scores of each sample that has any, >= 1.
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(use, count, batch_size, workers, first_id, begin, scores);
    }
  };
  explicit SampleLeases(const Options& options);
  SampleLeases();  // To load into.

  // Continues where another one ended: only `untrained` is left; the rest was trained in `batches`
  // batches.
  // REQUIRES: nothing was granted; the ranges are disjoint and in [0, count).
  void Resume(absl::Span<const Range> untrained, int64_t batches);

  // Leases the next range to `rank`: a multiple of batch_size unless the range ends first. Nothing
  // if all is granted. `pace`: of a task that trains.
  std::optional<SampleLease> Grant(Rank rank, const Pace& pace);
  std::optional<SampleLease> Grant(Rank rank) { return Grant(rank, Pace()); }
  // Leases this position alone, if it is not granted.
  std::optional<SampleLease> GrantAt(Rank rank, int64_t position);

  // `rank` is gone: its leases go back.
  void Return(Rank rank);

  // Accepts the progress of one lease. Idempotent; a report about a lease that is finished or gone
  // back, and one that says less than an earlier one, change nothing. An evaluation lease's result
  // is taken when it is finished.
  // Errors: kInvalidArgument  a lease that was never granted, a position outside the lease,
  //                           impossible figures, or scores of another number of samples than the
  //                           lease has.
  absl::Status Report(Rank rank, const SampleReport& report);
  absl::Status Validate(const SampleReport& report) const;  // Report's errors, without its effect.

  std::vector<SampleLease> HeldBy(Rank rank) const;  // Ordered by id.
  int HeldCount(Rank rank) const;
  bool has_ungranted() const { return !ungranted_.empty(); }
  bool complete() const { return ungranted_.empty() && held_.empty(); }
  int64_t positions_done() const { return positions_done_; }
  int64_t batches_done() const { return batches_done_; }
  std::vector<Range> Undone() const;  // Not reported done: ascending, with gaps between them.
  bool IsDone(int64_t position) const { return !Cover(Undone(), position); }  // It is reported.
  LeaseId next_id() const { return next_id_; }
  const Options& options() const { return options_; }

  // kEvaluate: the results of the finished leases, summed by position.
  EvaluationSum Sum() const;
  // kEvaluate: the scores of the finished leases that had any.
  const ScoreCounts& scores() const { return scores_; }

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(options_, next_id_, ungranted_count_, positions_done_, batches_done_, ungranted_, held_,
            results_, scores_);
    CheckLoaded(archive, [this] { return Check(); });
    if (Archive::is_loading::value && Planted(PlantedBug::kLoseLeasesOnRestart)) held_.clear();
  }

 private:
  struct Held {
    Rank rank;
    Range positions;
    int64_t done = 0;  // Every position below it is done.
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(rank, positions, done);
    }
  };

  absl::Status Check() const;  // Errors: kDataLoss  the invariants do not hold.
  int64_t NextSize(const Pace& pace) const;
  SampleLease Hold(Rank rank, const Range& positions);  // REQUIRES: they are in no other set.

  Options options_;
  LeaseId next_id_;
  int64_t ungranted_count_;
  int64_t positions_done_ = 0;
  int64_t batches_done_ = 0;
  std::map<int64_t, int64_t> ungranted_;  // Begin to end; disjoint.
  std::map<LeaseId, Held> held_;
  std::map<int64_t, EvaluationSum> results_;  // Keyed by first position.
  // The scores of all results: sums of whole numbers do not depend on the order.
  ScoreCounts scores_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_WORK_SAMPLE_LEASES_H_
