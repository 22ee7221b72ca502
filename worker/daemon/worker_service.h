// WorkerService: a worker daemon's service for users: the logs of its tasks (proto/worker.proto).
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_WORKER_DAEMON_WORKER_SERVICE_H_
#define CAPSTAN_WORKER_DAEMON_WORKER_SERVICE_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/certificates/identity.h"
#include "proto/worker.grpc.pb.h"
#include "worker/daemon/task_table.h"

namespace capstan::worker {

// Reads a part of a task's log below `work_dir`. `is_running`: true if a task may still write.
// Errors: kInvalidArgument  a field is out of its range; names it.
//         kNotFound         the task never ran here, or its log is gone.
//         kUnavailable      the file system fails.
absl::StatusOr<v1::ReadTaskLogResponse> ReadTaskLog(
    const std::string& work_dir, const v1::ReadTaskLogRequest& request,
    const std::function<bool(const TaskName&)>& is_running);

// Checks that the caller may read that log, by the owner of the job, which is in the task's spec.
// Only admins may read a log without a spec. A worker without credentials has no caller, and
// permits all.
// Errors: kNotFound  the job is another user's; the same error as for a log that is not there.
//         kInvalidArgument, kNotFound  as above.
absl::Status CheckMayReadLog(const std::string& work_dir, const v1::ReadTaskLogRequest& request,
                             const std::optional<Identity>& caller);

class WorkerService final : public v1::Worker::Service {
 public:
  WorkerService(std::string work_dir, std::function<bool(const TaskName&)> is_running);

  grpc::Status ReadTaskLog(grpc::ServerContext* context, const v1::ReadTaskLogRequest* request,
                           v1::ReadTaskLogResponse* response) override;

 private:
  const std::string work_dir_;
  const std::function<bool(const TaskName&)> is_running_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DAEMON_WORKER_SERVICE_H_
