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

#include "absl/status/status.h"
#include "common/types/ids.h"
#include "proto/task_logs.grpc.pb.h"
#include "scheduler/serial_executor.h"
#include "scheduler/task_logs/kept_logs.h"

namespace capstan::scheduler {

class TaskLogsService final : public v1::TaskLogs::CallbackService {
 public:
  static constexpr size_t kQueueMax = 256;  // Calls of at most 256 KiB each; more get UNAVAILABLE.

  // `is_known` returns true if the scheduler knows the job. The service's thread and Start() call
  // it.
  TaskLogsService(KeptLogs::Options options, std::function<bool(const JobId&)> is_known);
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
                                std::function<absl::Status()> work);
  absl::Status Keep(const v1::KeepTaskLogRequest& request, v1::KeepTaskLogResponse& response);
  absl::Status Read(const v1::ReadTaskLogRequest& request, v1::ReadTaskLogResponse& response);

  const std::function<bool(const JobId&)> is_known_;
  KeptLogs logs_;  // Only the service's thread uses it.
  SerialExecutor thread_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_TASK_LOGS_TASK_LOGS_SERVICE_H_
