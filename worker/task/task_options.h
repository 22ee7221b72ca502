// What a task's cores are told of its job: how the board plans and how the session sends.
//
// Pure functions of the job file. Thread safety: functions without state.
#ifndef CAPSTAN_WORKER_TASK_TASK_OPTIONS_H_
#define CAPSTAN_WORKER_TASK_TASK_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/job.pb.h"
#include "worker/client/message_codec.h"
#include "worker/core/push_pull_session.h"
#include "worker/core/row_cache.h"
#include "worker/core/task_board.h"

namespace capstan::worker {

// BSP with replicas or a log: servers hold a push back until its iteration is committed.
Acknowledgement AcknowledgementOf(const v1::JobSpec& job);
// SSP and ASP on sparse models, and on a GPU: what the next batch needs is read while one is
// computed, for that one has its own. Not where the job wants its own pushes read, and under
// SSP(0), whose servers would wait for the push.
bool EarlyPulls(const v1::JobSpec& job, bool on_gpu);
// An operation outlasts the time that the job gives lost servers to come back.
PushPullSession::Options SessionOptions(const v1::JobSpec& job, bool on_gpu);
// By table: the job's formats for its parameters, fp32 for its statistics.
Formats WireFormats(const v1::JobSpec& job);
// PushPullClient's: what a batch needs of a bucket, about, as far as the job file says; empty for
// models of layers.
std::vector<int64_t> BucketBytes(const v1::JobSpec& job);
int64_t SharedMemoryBytes(const v1::JobSpec& job);  // With each server.
// Of a sparse model's rows of `dim` floats; none: the job has no cache of rows.
std::optional<RowCache::Options> RowCacheOptions(const v1::JobSpec& job, int64_t dim);
// The number of training samples is still to be set.
TaskBoard::Options BoardOptions(const v1::JobSpec& job);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_TASK_OPTIONS_H_
