// JobOptions: everything that a seed decides about one job of a simulated world.
//
// Thread safety: values; what draws is a pure function of its stream.
#ifndef CAPSTAN_TESTS_SIMULATION_WORLD_JOB_OPTIONS_H_
#define CAPSTAN_TESTS_SIMULATION_WORLD_JOB_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/types/consistency_rule.h"
#include "tests/simulation/network/prng.h"

namespace capstan::sim {

// When keys of the sparse table get rows and lose them: as SparseSpec says, whose default it is.
struct RowLifetime {
  int32_t admit_after = 0;
  int64_t admission_keys = 0;
  float admit_probability = 1.0f;
  int32_t evict_after_updates = 0;
  int64_t ttl_seconds = 0;
  int64_t rows_max = 0;
  friend bool operator==(const RowLifetime&, const RowLifetime&) = default;
};

struct JobOptions {
  int number = 1;               // Counts from 1, in the order of submission.
  uint64_t seed = 0;            // Seed of its initial values and samples.
  absl::Duration submit_after;  // The world's start.
  ConsistencyMode mode = ConsistencyMode::kBsp;
  int staleness_bound = 0;
  int workers = 1;
  int servers = 0;  // 0: all.
  int slots = 1;
  int backups = 0;  // BSP.
  int64_t batch_size = 1;
  int64_t train_count = 1;
  int64_t test_count = 0;
  int epochs = 1;
  // ASP: its tasks are programs that push and pull at their own pace, so many operations each.
  // Above 0: there is one epoch of a sample a worker, and no table holds moving averages.
  int own_operations = 0;
  std::vector<int64_t> table_elements;  // Table 1, if there is one, holds moving averages (BSP).
  // Above 0: table 0 is sparse, with so many buckets; its elements are those of all rows.
  int32_t sparse_buckets = 0;
  int64_t sparse_dim = 1;
  RowLifetime row_lifetime;
  int64_t sparse_memory = 0;  // Bytes; 0: no limit.
  // SSP, ASP: rows that a task keeps, and under ASP in how many more iterations it may use one.
  int64_t cached_rows = 0;
  int cached_iterations = 0;
  int optimizer = 0;  // BSP: 0 SGD, 1 momentum, 2 Adam, 3 Adagrad.
  int replicas = 0;
  bool log = false;
  int64_t push_bytes_max = 64 << 20;  // Limit of what a task has under way to one server.
  int64_t checkpoint_iterations = 0;
  int checkpoints_kept = 2;
  int max_restarts = 1000;
  absl::Duration worker_wait = absl::Minutes(10);
  absl::Duration server_wait = absl::Minutes(2);
  absl::Duration compute_min = absl::Milliseconds(5);  // Shortest computation of a batch.
  absl::Duration compute_max = absl::Milliseconds(50);
  absl::Duration prepare_max;  // Longest time from a task's first report to its readiness for work.
  absl::Duration export_max;   // Longest time to write the model.

  // The computation of all evaluations, or of all training, if one task does it batch by batch.
  absl::Duration evaluations_max() const { return ComputationMax(test_count); }
  absl::Duration training_max() const {
    return ComputationMax(train_count) + compute_max * own_operations;
  }
  absl::Duration ComputationMax(int64_t samples) const {
    const int64_t batches = (samples + batch_size - 1) / batch_size;
    return compute_max * static_cast<double>(batches * epochs);
  }

  // Tasks pull the rows of the next batch while one is computed
  // (worker/task/computation/task_options.h).
  bool early_pulls() const {
    return sparse_buckets > 0 && own_operations == 0 &&
           (mode == ConsistencyMode::kAsp ||
            (mode == ConsistencyMode::kSsp && staleness_bound > 0));
  }
};

// The resources that there are for a job.
struct JobPlaces {
  int servers = 1;
  int slots = 1;  // Task slots of all worker daemons.
};

// A job of dense tables, without what the following draw.
void DrawJob(Prng& prng, const JobPlaces& places, JobOptions& job);
// How long a batch takes: the job is to be under way for most of `time`, or up to `longest` times
// as long.
void DrawPace(Prng& prng, absl::Duration time, double longest, JobOptions& job);
void DrawSparse(Prng& prng, JobOptions& job);   // Makes its first table a sparse one.
void DrawBackups(Prng prng, JobOptions& job);   // Makes some BSP jobs wait for fewer slots.
void DrawTtl(Prng prng, JobOptions& job);       // Gives the rows of some jobs a time to live.
void DrawPushRoom(Prng prng, JobOptions& job);  // Makes the pushes of some jobs wait for room.
void DrawOwnPace(Prng prng, JobOptions& job);   // Makes the tasks of some ASP jobs programs.
// A log, or a checkpoint to go back to.
void DrawJobMeans(Prng& prng, JobOptions& job);

std::string Describe(const JobOptions& job);  // Text for people.

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_WORLD_JOB_OPTIONS_H_
