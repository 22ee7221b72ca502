// SamplePlanner: decides which samples a worker task trains (SSP, ASP) or evaluates next.
//
// The scheduler leases ranges of positions in the epoch's order; the planner cuts them into
// batches, in order, and records what was acknowledged, so that only the rest of a dead task's
// leases goes to other tasks. Pure. Thread safety: thread-compatible.
// Invariant: begin <= done <= next <= end for every lease.
#ifndef CAPSTAN_WORKER_CORE_SAMPLE_PLANNER_H_
#define CAPSTAN_WORKER_CORE_SAMPLE_PLANNER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/metrics/evaluation.h"
#include "common/metrics/score_counts.h"
#include "common/types/ids.h"

namespace capstan::worker {

struct SampleLease {
  LeaseId lease;
  Range positions;  // Positions in the epoch's order.
};

// A batch to compute.
struct SampleWork {
  LeaseId lease;
  Range positions;
  friend bool operator==(const SampleWork&, const SampleWork&) = default;
};

// The result of one batch.
struct WorkResult {
  int64_t samples = 0;
  double loss_sum = 0.0;
  int64_t correct = 0;
  ScoreCounts scores = {};  // Evaluation of a job that predicts clicks: counts every sample.
  OutputSums outputs = {};  // Filled by evaluation of a model of layers.
};

struct SampleProgress {
  LeaseId lease;
  int64_t position_done = 0;  // Every position of the lease below it is done.
  double loss_sum = 0.0;      // Over the done positions.
  int64_t correct = 0;
  OutputSums outputs = {};
  ScoreCounts scores = {};  // Covers the whole lease once it is done; empty until then.
};

class SamplePlanner {
 public:
  explicit SamplePlanner(int64_t batch_size) : batch_size_(batch_size) {}  // REQUIRES: >= 1.

  // Replaces the leases; a lease that is held already keeps its progress.
  void Assign(const std::vector<SampleLease>& leases);

  std::optional<SampleWork> Next() const;
  std::vector<SampleWork> Upcoming(int count) const;  // The next `count` batches in order.
  void Started(const SampleWork& work);

  // `work` is acknowledged (or evaluated). Batches of a lease are done in order.
  void Done(const SampleWork& work, const WorkResult& result);

  bool Finished() const;  // Every lease is done.

  // The number of leases that are not done; the task asks for more when there are few.
  int UnfinishedLeases() const;

  std::vector<SampleProgress> Progress() const;  // Ordered as the leases.

 private:
  struct Lease {
    SampleLease lease;
    int64_t next = 0;
    SampleProgress progress;  // Its scores stay empty: see `scores`.
    ScoreCounts scores = {};  // Over the done positions.
    bool done() const { return progress.position_done >= lease.positions.end; }
  };
  Lease* Find(LeaseId id);

  const int64_t batch_size_;
  std::vector<Lease> leases_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CORE_SAMPLE_PLANNER_H_
