// Clients of the scheduler, the servers and the workers for the command line: every call has a
// deadline, and every error names the peer.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SCHEDULER_CLI_CLIENT_CLIENT_H_
#define CAPSTAN_SCHEDULER_CLI_CLIENT_CLIENT_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/grpc/credentials.h"
#include "proto/parameter_server.grpc.pb.h"
#include "proto/scheduler.grpc.pb.h"
#include "proto/task_logs.grpc.pb.h"
#include "proto/uploads.grpc.pb.h"
#include "proto/worker.grpc.pb.h"
#include "scheduler/cli/settings/settings.h"

namespace capstan::cli {

inline constexpr absl::Duration kCallTimeout = absl::Seconds(15);
// The scheduler reads a job's data before it answers.
inline constexpr absl::Duration kSubmitTimeout = absl::Minutes(2);

// The type of a method of a generated stub.
template <typename Stub, typename Request, typename Response>
using MethodOf = grpc::Status (Stub::*)(grpc::ClientContext* context, const Request& request,
                                        Response* response);

// Errors of every method: kUnavailable, kDeadlineExceeded  the peer cannot be reached or is too
// slow; kCancelled  a signal came during a call of the scheduler that may take minutes (only if an
// Interrupts object exists); else the peer's answer (proto/scheduler.proto).
class SchedulerClient {
 public:
  // Null credentials: plain text. They outlive the client, here and below.
  explicit SchedulerClient(const Setting& scheduler, const Credentials* credentials = nullptr);

  // Calls any method of the scheduler: Ask(&v1::Scheduler::Stub::AnnotateJob, request). The
  // functions below are for calls whose request takes more than one line, or that many commands
  // make.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Ask(MethodOf<v1::Scheduler::Stub, Request, Response> method,
                               const std::type_identity_t<Request>& request,
                               absl::Duration timeout = kCallTimeout) {
    return AskBy(*stub_, method, request, timeout);
  }
  // Fills in the protocol's version. SubmitPatiently() repeats calls without an answer.
  absl::StatusOr<v1::SubmitJobResponse> SubmitJob(v1::SubmitJobRequest request,
                                                  absl::Duration timeout = kSubmitTimeout);
  absl::StatusOr<v1::JobStatus> GetJob(const std::string& job_id);
  // The scheduler waits until the job's revision is above `revision`, at most `wait` (<= 60 s).
  absl::StatusOr<v1::JobStatus> WaitJob(const std::string& job_id, uint64_t revision,
                                        absl::Duration wait);
  enum class Save { kNo, kYes };
  absl::StatusOr<v1::StopJobResponse> StopJob(const std::string& job_id, Save save = Save::kNo);
  absl::StatusOr<v1::DeleteJobResponse> DeleteJob(const std::string& job_id);
  // Recovers a job of another cluster, whose logs this cluster's servers have.
  absl::StatusOr<v1::RecoverJobResponse> RecoverJob(const std::string& job);
  // Reads the part of a task's log that the scheduler stores. It outlives the task's worker.
  absl::StatusOr<v1::ReadTaskLogResponse> ReadKeptLog(const v1::ReadTaskLogRequest& request);
  absl::StatusOr<v1::ListNodesResponse> ListNodes();
  absl::StatusOr<v1::GetTablesResponse> GetTables(const std::string& job_id);
  // The scheduler waits for the end of the drain, at most `wait` (<= 60 s).
  absl::StatusOr<v1::DrainNodeResponse> DrainNode(const std::string& node_id, absl::Duration wait);
  absl::StatusOr<v1::DrainNodeResponse> CancelDrain(const std::string& node_id);
  // Requests a checkpoint, or waits for an earlier request (`asked_id` is not 0), at most `wait`
  // (<= 60 s). An answer without a checkpoint_id means that the checkpoint is not complete yet.
  // operations/checkpoint_save.h waits for its end.
  absl::StatusOr<v1::SaveCheckpointResponse> SaveCheckpoint(const std::string& job_id,
                                                            uint64_t asked_id, absl::Duration wait);

  // Send a file in pieces (proto/uploads.proto); UploadWeights() sends a whole one.
  absl::StatusOr<v1::UploadPieceResponse> WriteUpload(const v1::UploadPieceRequest& request);
  absl::StatusOr<v1::FinishUploadResponse> FinishUpload(const v1::FinishUploadRequest& request);

  const std::string& address() const { return scheduler_.value; }
  const Credentials* credentials() const { return credentials_; }

 private:
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> AskBy(Stub& stub, MethodOf<Stub, Request, Response> method,
                                 const std::type_identity_t<Request>& request,
                                 absl::Duration timeout) {
    Response response;
    const absl::Status status = Ask(timeout, [&](grpc::ClientContext* context) {
      return (stub.*method)(context, request, &response);
    });
    if (!status.ok()) return status;
    return response;
  }
  absl::Status Explain(const absl::Status& status) const;
  absl::Status Ask(absl::Duration timeout,
                   absl::FunctionRef<grpc::Status(grpc::ClientContext*)> call);
  // If the last call could not reach the scheduler, waits a short time for a connection.
  void AwaitReturn();

  const Setting scheduler_;
  const Credentials* const credentials_;
  std::atomic<bool> away_ = false;  // The last call could not reach the scheduler.
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Scheduler::Stub> stub_;
  const std::unique_ptr<v1::TaskLogs::Stub> logs_stub_;
  const std::unique_ptr<v1::Uploads::Stub> uploads_stub_;
};

class ServerClient {
 public:
  // `name` is the node's name, which its certificate has as well.
  ServerClient(const std::string& name, const std::string& address, const Credentials* credentials);

  absl::StatusOr<v1::DescribeTablesResponse> DescribeTables(const std::string& job_id);
  absl::StatusOr<v1::DescribeTrafficResponse> DescribeTraffic();
  // `capability`: GetTablesResponse.capability.
  absl::StatusOr<v1::PullResponse> Pull(const v1::PullRequest& request,
                                        const std::string& capability);

 private:
  const std::string name_;
  const std::unique_ptr<v1::ParameterServer::Stub> stub_;
};

class WorkerClient {
 public:
  WorkerClient(const std::string& name, const std::string& address, const Credentials* credentials);

  absl::StatusOr<v1::ReadTaskLogResponse> ReadTaskLog(const v1::ReadTaskLogRequest& request);

 private:
  const std::string name_;
  const std::unique_ptr<v1::Worker::Stub> stub_;
};

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CLIENT_CLIENT_H_
