// CallChecks: checks whether a push, pull or scan may be carried out, and finds its gradients or
// keys.
//
// A message is checked as a whole before any of it touches state, so that a message which is
// refused has changed nothing. Keys that a message names by a list are looked up here, or kept for
// later messages.
// Called by JobCalls, for each message.
// Thread safety: thread-safe; all functions need the job's mutex, which they may share.
#ifndef CAPSTAN_SERVER_ENGINE_JOB_CALL_CHECKS_H_
#define CAPSTAN_SERVER_ENGINE_JOB_CALL_CHECKS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.pb.h"
#include "server/engine/job/job_state.h"
#include "server/store/gradient.h"

namespace capstan::server {

class CallChecks {
 public:
  // Limit of the keys that all waiting pulls from sparse tables request together.
  static constexpr int64_t kWaitingKeyBytesMax = 256 << 20;

  explicit CallChecks(JobState* state) : state_(state) {}

  // Errors: see JobCalls::Push, also for the next ones.
  absl::Status CheckCallerLocked(const v1::Caller& caller) const
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  // The gradient that a push brings for each of its shards, or the keys that a pull asks of each.
  // None: the message names a list of keys that is not kept.
  absl::StatusOr<std::optional<std::vector<Gradient>>> CheckPushLocked(const PushMessage& push)
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  absl::StatusOr<std::optional<std::vector<RowKeys>>> CheckPullLocked(
      const v1::PullRequest& request) ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  // The part of CheckPullLocked whose result may change while rows are read ahead: who may pull,
  // and where.
  absl::Status CheckPullHeadLocked(const v1::PullRequest& request) const
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  // Checks that so many keys may wait, and that their rows fit in an answer.
  absl::Status CheckPullSizeLocked(const v1::PullRequest& request,
                                   const std::vector<RowKeys>& keys) const
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  // Checks that the rows which have changed after `since` can be named.
  absl::Status CheckSinceLocked(const v1::ScanSince& since, Version present) const
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);

 private:
  // The keys that a pull requests from one shard; kept as a list if the pull names them. None: as
  // above.
  absl::StatusOr<std::optional<RowKeys>> KeysOfLocked(const v1::Caller& caller,
                                                      const v1::ShardPull& shard)
      ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);

  JobState* const state_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_JOB_CALL_CHECKS_H_
