// The options of a simulated task's cores, from its job: those that real tasks have
// (worker/task/computation/task_options.h), with smaller batches and messages; and the results of
// its batches. Functions without state, for SimTask alone.
#ifndef CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_TASK_OPTIONS_H_
#define CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_TASK_OPTIONS_H_

#include <optional>

#include "proto/job.pb.h"
#include "tests/simulation/checkers/evaluation.h"
#include "tests/simulation/world/checker.h"
#include "tests/simulation/world/job_world.h"
#include "worker/client/messages/message_codec.h"
#include "worker/core/push_pull_session.h"
#include "worker/core/row_cache.h"
#include "worker/core/task_board.h"
#include "worker/task/computation/task_options.h"

namespace capstan::sim {

inline worker::TaskBoard::Options BoardOptions(const JobWorld& job, const v1::JobSpec& spec) {
  worker::TaskBoard::Options options = worker::BoardOptions(spec);
  options.evaluation_batch_size = 4;  // So that one evaluation is several batches.
  options.train_samples = job.options.train_count;
  return options;
}

inline worker::PushPullSession::Options SessionOptions(const v1::JobSpec& spec) {
  worker::PushPullSession::Options options = worker::SessionOptions(spec, /*on_gpu=*/false);
  // A few shards a message, so that one push is several messages.
  options.chunk_bytes_min = options.chunk_bytes_max = 128;
  return options;
}

inline std::optional<worker::RowCache> MakeRowCache(const JobOptions& job,
                                                    const v1::JobSpec& spec) {
  const auto options = worker::RowCacheOptions(spec, job.sparse_dim);
  if (!options.has_value()) return std::nullopt;
  return worker::RowCache(*options);
}

// Tells the checkers, bucket by bucket, which rows the task uses after its pull for `iteration`.
inline void TellRowsUsed(JobWorld* job, const TaskKey& task_key, Iteration iteration,
                         const worker::TableKeys& pulled, absl::Span<const float> rows) {
  for (int32_t bucket = 0; bucket < job->options.sparse_buckets; ++bucket) {
    const RowsUse use{.task_key = task_key,
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

#endif  // CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_TASK_OPTIONS_H_
