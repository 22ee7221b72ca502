// JobCalls: the pushes, pulls and scans of one job: checks a message, carries it out shard by
// shard, and keeps the call until its last shard is answered and safe.
//
// A message is checked as a whole before any of it touches state (CallChecks). A call that waits
// holds no thread: it is an entry of WaitingCalls.
//
//   Push, Pull --> checked --> every shard answered, and what it rests on committed --> done(OK)
//                     |  \                            ^
//                     |   '--> WAITING --push, members, Tick(deadline), a replica's answer---'
//                     |          |---Cancel-----------------> done(kCancelled)
//                     |          |---another primary--------> done(kFailedPrecondition)
//                     |          '---Close, Fail------------> done(the reason)
//                     '--> done(what is wrong)
//
// In a job without replicas and log (`safe_replies` false) nothing is committed later than applied,
// and a push is answered before Push returns.
// Called by ValueCalls (pushes and pulls) and ParameterService.
// Thread safety: thread-safe. Calls share the job's mutex and lock one shard after another.
#ifndef CAPSTAN_SERVER_ENGINE_JOB_JOB_CALLS_H_
#define CAPSTAN_SERVER_ENGINE_JOB_JOB_CALLS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.pb.h"
#include "server/engine/job/call_checks.h"
#include "server/engine/job/call_sink.h"
#include "server/engine/job/commit_pipeline.h"
#include "server/engine/job/job_state.h"
#include "server/engine/waiting_calls.h"
#include "server/store/gradient.h"
#include "server/store/row_disk.h"

namespace capstan::server {

class JobCalls {
 public:
  // Bytes of rows in one answer to a scan.
  static constexpr int32_t kScanBytesMax = 4 << 20;

  // Called exactly once per call, from any thread, under no lock of the job.
  using Done = WaitingCalls::Done;
  using CallId = WaitingCalls::CallId;

  JobCalls(JobState* state, CommitPipeline* commits)
      : state_(state), commits_(commits), checks_(state) {}

  // A call fills the answer and calls `done`, now or later; the message is not needed after the
  // call. Values of an answer are lent: the shard's memory lives as long as they do. Returns the id
  // to cancel the call by if it waits.
  // Errors (to `done`):
  //         kInvalidArgument    an invalid field; names shard, value and what was expected.
  //         kNotFound           a shard that is not held here.
  //         kFailedPrecondition the caller's routing table is older than this server's, or another
  //                             server is a shard's primary now.
  //         kUnavailable        it is newer: this server has not accepted it yet.
  //         kAborted            the caller's incarnation is fenced off.
  //         kResourceExhausted  too many pushes beyond the low-water mark, or no memory; pulls that
  //                             wait hold too many keys.
  std::optional<CallId> Push(const PushMessage& push, v1::PushResponse* response, Done done);
  std::optional<CallId> Pull(const v1::PullRequest& request, PullAnswer* answer, Done done);
  // Reads rows of one bucket of a sparse table, as they are now. The errors of a pull;
  // kInvalidArgument also for a dense shard; kOutOfRange  changes since a version of another
  // timeline.
  std::optional<CallId> ScanRows(const v1::ScanRowsRequest& request, v1::ScanRowsResponse* response,
                                 Done done);
  void Cancel(CallId call);  // Ends the call with kCancelled; unknown ids are ignored.

  v1::KeyListCounts key_list_counts() const { return state_->key_lists.counts(); }

 private:
  // Limit of the payloads that are read ahead for one pull.
  static constexpr int64_t kFetchBytesMax = 64 << 20;
  // A pull's keys, and what of its rows was read ahead of its turn.
  struct Ahead {
    std::vector<RowKeys> keys;
    std::vector<std::pair<ShardKey, std::unique_ptr<RowFetch>>> fetches;
  };

  // Reads what the pull will need from disk, without the mutex: other calls go on. It decides
  // nothing: what has changed meanwhile, or cannot be read, is left to the pull. None: nothing is
  // on disk, or the pull will be refused.
  std::optional<Ahead> FetchRows(const v1::PullRequest& request);
  // Same as CallChecks::CheckPullLocked, for a pull that may have been read ahead; accepts what has
  // arrived for it.
  absl::StatusOr<std::optional<std::vector<RowKeys>>> KeysOfPullLocked(
      const v1::PullRequest& request, std::optional<Ahead> ahead)
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  absl::Status PushLocked(const v1::PushRequest& push, const std::vector<Gradient>& gradients,
                          v1::PushResponse* response, CallSink& sink)
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  absl::Status PullLocked(const v1::PullRequest& request, const std::vector<RowKeys>& keys,
                          CallId call, PullAnswer* answer, CallSink& sink, JobEffects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  absl::Status ScanLocked(const v1::ScanRowsRequest& request, CallId call,
                          v1::ScanRowsResponse* response, CallSink& sink)
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);

  JobState* const state_;
  CommitPipeline* const commits_;
  CallChecks checks_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_JOB_JOB_CALLS_H_
