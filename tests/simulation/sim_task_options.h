// What a simulated task's cores are told of its job, as worker/task/task_options.h tells real ones,
// and what its batches come to. Pure functions; of SimTask alone.
#ifndef CAPSTAN_TESTS_SIMULATION_SIM_TASK_OPTIONS_H_
#define CAPSTAN_TESTS_SIMULATION_SIM_TASK_OPTIONS_H_

#include <optional>

#include "common/job/consistency_of.h"
#include "proto/job.pb.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/evaluation.h"
#include "tests/simulation/job_world.h"
#include "worker/client/message_codec.h"
#include "worker/core/push_pull_session.h"
#include "worker/core/row_cache.h"
#include "worker/core/task_board.h"

namespace capstan::sim {

inline worker::Acknowledgement AcknowledgementOf(const v1::JobSpec& spec) {
  const bool safe = spec.resources().replicas() > 0 || spec.durability() == v1::LOG;
  return safe && ConsistencyOf(spec).synchronous() ? worker::Acknowledgement::kWholeIteration
                                                   : worker::Acknowledgement::kEachPush;
}

inline worker::TaskBoard::Options BoardOptions(const JobWorld& job, const v1::JobSpec& spec) {
  const ConsistencyRule consistency = ConsistencyOf(spec);
  return {.bsp = consistency.synchronous(),
          .slots = consistency.slots,
          .backups = consistency.backups,
          .batch_size = spec.training().batch_size(),
          .evaluation_batch_size = 4,
          .train_samples = job.options.train_count};
}

inline worker::PushPullSession::Options SessionOptions(const JobWorld& job,
                                                       const v1::JobSpec& spec) {
  worker::PushPullSession::Options options{.pulls_behind_pushes = ConsistencyOf(spec).synchronous(),
                                           .early_pulls = job.options.early_pulls()};
  // A few shards a message, so that one push is several messages.
  options.chunk_bytes_min = options.chunk_bytes_max = 128;
  options.acknowledgement = AcknowledgementOf(spec);
  return options;
}

inline std::optional<worker::RowCache> MakeRowCache(const JobOptions& job) {
  if (job.cached_rows == 0) return std::nullopt;
  const bool ssp = job.mode == ConsistencyMode::kSsp;
  return worker::RowCache({.rows_max = job.cached_rows,
                           .dim = job.sparse_dim,
                           .by_floor = ssp,
                           .bound = ssp ? job.staleness_bound : job.cached_iterations});
}

// What a pull for `iteration` came to, for the checkers: bucket by bucket.
inline void TellRowsUsed(JobWorld* job, const Life& life, Iteration iteration,
                         const worker::TableKeys& pulled, absl::Span<const float> rows) {
  for (int32_t bucket = 0; bucket < job->options.sparse_buckets; ++bucket) {
    const RowsUse use{.life = life,
                      .shard = {TableId(0), ShardId(bucket)},
                      .iteration = iteration,
                      .places = pulled.batch->InBucket(bucket),
                      .asked = pulled.wanted->InBucket(bucket),
                      .rows = rows};
    job->Tell([&](Checker& checker) { checker.RowsUsed(use); });
  }
}

inline worker::WorkResult EvaluationOf(const JobOptions& job, const worker::Work& work) {
  const Evaluated evaluated = Evaluate(job, work.epoch, work.positions);
  return {.samples = work.positions.size(),
          .loss_sum = evaluated.loss_sum,
          .correct = evaluated.correct,
          .scores = evaluated.scores};
}

inline worker::WorkResult ResultOf(const worker::Work& work) {
  return {.samples = work.positions.size(),
          .loss_sum = static_cast<double>(work.positions.size()),
          .correct = work.positions.size()};
}

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_SIM_TASK_OPTIONS_H_
