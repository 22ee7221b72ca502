// The options of a task's cores that follow from its job: how the board plans and how the session
// sends.
//
// Pure functions of the job file. Thread safety: the functions have no state.
#ifndef CAPSTAN_WORKER_TASK_COMPUTATION_TASK_OPTIONS_H_
#define CAPSTAN_WORKER_TASK_COMPUTATION_TASK_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/job.pb.h"
#include "worker/client/messages/message_codec.h"
#include "worker/core/push_pull_session.h"
#include "worker/core/row_cache.h"
#include "worker/core/task_board.h"

namespace capstan::worker {

// kWholeIteration for BSP with replicas or a log: servers acknowledge committed iterations.
Acknowledgement AcknowledgementOf(const v1::JobSpec& job);
// True for SSP and ASP on sparse models, and on a GPU: the next batch's parameters are pulled while
// a batch is computed, which has a copy of its own. False if the job must read its own pushes, and
// under SSP(0), whose servers would wait for the push.
bool EarlyPulls(const v1::JobSpec& job, bool on_gpu);
// Operations wait longer than the time that the job gives lost servers to come back.
PushPullSession::Options SessionOptions(const v1::JobSpec& job, bool on_gpu);
// The formats of each table: the job's for its parameters, fp32 for tables beyond them
// (statistics).
Formats WireFormats(const v1::JobSpec& job);
// PushPullClient::Options::bucket_bytes: about how many bytes of a bucket an operation needs,
// estimated from the job file; empty for models of layers.
std::vector<int64_t> BucketBytes(const v1::JobSpec& job);
int64_t SharedMemoryBytes(const v1::JobSpec& job);  // The most memory shared with each server.
// The cache for a sparse model's rows of `dim` floats; none: the job has no cache of rows.
std::optional<RowCache::Options> RowCacheOptions(const v1::JobSpec& job, int64_t dim);
// The board's options; the number of training samples must be set later.
TaskBoard::Options BoardOptions(const v1::JobSpec& job);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_COMPUTATION_TASK_OPTIONS_H_
