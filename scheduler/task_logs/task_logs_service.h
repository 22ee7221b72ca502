// TaskLogsService: the gRPC service that stores the ends of tasks' logs, which worker daemons send,
// and lets clients read them after a worker is gone (proto/task_logs.proto).
//
//   gRPC callback --> [ queue, at most kQueueMax ] --> one thread: KeptLogs
//
// Thread safety: thread-safe, except that one thread calls Start and Stop.
#ifndef CAPSTAN_SCHEDULER_TASK_LOGS_TASK_LOGS_SERVICE_H_
#define CAPSTAN_SCHEDULER_TASK_LOGS_TASK_LOGS_SERVICE_H_

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "common/security/certificates/identity.h"
#include "common/types/ids.h"
#include "proto/task_logs.grpc.pb.h"
#include "scheduler/queues/serial_executor.h"
#include "scheduler/task_logs/kept_logs.h"

namespace capstan::scheduler {

class TaskLogsService final : public v1::TaskLogs::CallbackService {
 public:
  static constexpr size_t kQueueMax = 256;  // Calls of at most 256 KiB each; more get UNAVAILABLE.

  using Caller = std::optional<Identity>;  // Empty: the scheduler authenticates nobody.
  // The scheduler's knowledge of jobs and of callers. The service's thread calls these functions;
  // Start() calls `is_known`, too.
  struct Rights {
    std::function<bool(const JobId&)> is_known;
    std::function<bool(const JobId&, const Caller&)> may_read;
    // The caller is the worker of that task.
    std::function<bool(const JobId&, Rank, Incarnation, const Caller&)> may_keep;
  };

  TaskLogsService(KeptLogs::Options options, Rights rights);
  ~TaskLogsService() override;  // Stops.

  // Errors: those of KeptLogs::Open; then the service is not started.
  absl::Status Start();
  void Stop();  // Answers all queued calls. Idempotent.
  // Removes the logs of a job that the scheduler has forgotten. Never waits.
  void Forget(const JobId& job);

  grpc::ServerUnaryReactor* KeepTaskLog(grpc::CallbackServerContext* context,
                                        const v1::KeepTaskLogRequest* request,
                                        v1::KeepTaskLogResponse* response) override;
  grpc::ServerUnaryReactor* ReadKeptLog(grpc::CallbackServerContext* context,
                                        const v1::ReadTaskLogRequest* request,
                                        v1::ReadTaskLogResponse* response) override;

 private:
  // Runs `work` on the service's thread, and finishes the call with its status.
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context,
                                std::function<absl::Status(const Caller& caller)> work);
  absl::Status Keep(const v1::KeepTaskLogRequest& request, const Caller& caller,
                    v1::KeepTaskLogResponse& response);
  absl::Status Read(const v1::ReadTaskLogRequest& request, const Caller& caller,
                    v1::ReadTaskLogResponse& response);
  absl::Status CheckMayKeep(const v1::KeepTaskLogRequest& request, const Caller& caller);

  const Rights rights_;
  // Only the service's thread uses these.
  KeptLogs logs_;
  // The worker that has written each log since this scheduler started, by job: it may write the
  // rest even if the job no longer runs on it.
  std::map<JobId, std::map<std::pair<Rank, Incarnation>, NodeId>> writers_;
  SerialExecutor thread_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_TASK_LOGS_TASK_LOGS_SERVICE_H_
