#include "scheduler/cli/client/client.h"

#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/capability_metadata.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/status/annotate.h"
#include "scheduler/cli/console/interrupts.h"

namespace capstan::cli {
namespace {

constexpr absl::Duration kPullTimeout = absl::Minutes(2);
// The longest wait for a connection after a call that could not reach the scheduler.
constexpr absl::Duration kReturnWait = absl::Milliseconds(500);
// Signals cancel calls that may take longer. Others end soon, and their answers are not lost.
constexpr absl::Duration kUncancelledMax = absl::Seconds(20);
constexpr absl::Duration kSignalInterval = absl::Milliseconds(50);  // Between looks for a signal.

// Cancels a call when a signal comes during it. A call that is made after a signal goes on: it may
// be the one that stops a job.
class CancelAtSignal {
 public:
  // `context` outlives this object.
  explicit CancelAtSignal(grpc::ClientContext* context) {
    if (Interrupts::Signal() != 0) return;
    thread_ = std::thread([this, context] {
      while (!done_.WaitForNotificationWithTimeout(kSignalInterval)) {
        if (Interrupts::Signal() != 0) return context->TryCancel();
      }
    });
  }
  ~CancelAtSignal() {
    done_.Notify();
    if (thread_.joinable()) thread_.join();
  }

 private:
  absl::Notification done_;
  std::thread thread_;
};

// Calls `method` of `stub` and returns the answer or the error.
template <typename Response, typename Stub, typename Method, typename Request>
absl::StatusOr<Response> Call(Stub& stub, Method method, const Request& request,
                              absl::Duration timeout, const std::string& capability = "") {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  AddCapability(capability, &context);
  Response response;
  const grpc::Status status = (stub.*method)(&context, request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

absl::Status ExplainPeer(const absl::Status& status, const std::string& name) {
  return status.ok() ? status : Annotate(status, name);
}

}  // namespace

SchedulerClient::SchedulerClient(const Setting& scheduler, const Credentials* credentials)
    : scheduler_(scheduler),
      credentials_(credentials),
      channel_(MakeChannel(scheduler.value, ChannelKind::kControl, credentials)),
      stub_(v1::Scheduler::NewStub(channel_)),
      logs_stub_(v1::TaskLogs::NewStub(channel_)),
      uploads_stub_(v1::Uploads::NewStub(channel_)) {}

// gRPC makes progress on a connection only while a call or this function waits. With only calls
// that fail at once, it would find a returned scheduler up to five seconds late.
void SchedulerClient::AwaitReturn() {
  if (!away_) return;
  channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + kReturnWait));
}

absl::Status SchedulerClient::Ask(absl::Duration timeout,
                                  absl::FunctionRef<grpc::Status(grpc::ClientContext*)> call) {
  AwaitReturn();
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  std::optional<CancelAtSignal> cancel;
  if (timeout > kUncancelledMax) cancel.emplace(&context);
  const absl::Status status = FromGrpcStatus(call(&context));
  away_ = absl::IsUnavailable(status);
  return Explain(status);
}

absl::Status SchedulerClient::Explain(const absl::Status& status) const {
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    return absl::Status(
        status.code(),
        absl::StrCat("the scheduler at ", scheduler_.value, " (from ", scheduler_.origin,
                     ") cannot be reached: ", status.message(),
                     "\nStart a local cluster with `capstan cluster up`, or name another scheduler "
                     "with --scheduler or CAPSTAN_SCHEDULER."));
  }
  if (absl::IsUnimplemented(status)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "what listens at ", scheduler_.value, " (from ", scheduler_.origin,
        ") is no Capstan scheduler, or one of another version; servers and workers have ports of "
        "their own: expected the scheduler's",
        status.message().empty() ? "" : ": ", status.message()));
  }
  return status;
}

absl::StatusOr<v1::SubmitJobResponse> SchedulerClient::SubmitJob(v1::SubmitJobRequest request,
                                                                 absl::Duration timeout) {
  request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  return Ask(&v1::Scheduler::Stub::SubmitJob, request, timeout);
}

absl::StatusOr<v1::JobStatus> SchedulerClient::GetJob(const std::string& job_id) {
  return WaitJob(job_id, 0, absl::ZeroDuration());
}

absl::StatusOr<v1::JobStatus> SchedulerClient::WaitJob(const std::string& job_id, uint64_t revision,
                                                       absl::Duration wait) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  request.set_after_revision(revision);
  request.set_wait_limit_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(wait)));
  auto response = Ask(&v1::Scheduler::Stub::GetJob, request, wait + kCallTimeout);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_status());
}

absl::StatusOr<v1::StopJobResponse> SchedulerClient::StopJob(const std::string& job_id, Save save) {
  v1::StopJobRequest request;
  request.set_job_id(job_id);
  request.set_save(save == Save::kYes);
  return Ask(&v1::Scheduler::Stub::StopJob, request);
}

absl::StatusOr<v1::DeleteJobResponse> SchedulerClient::DeleteJob(const std::string& job_id) {
  v1::DeleteJobRequest request;
  request.set_job_id(job_id);
  return Ask(&v1::Scheduler::Stub::DeleteJob, request);
}

absl::StatusOr<v1::RecoverJobResponse> SchedulerClient::RecoverJob(const std::string& job) {
  v1::RecoverJobRequest request;
  request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  request.set_job(job);
  return Ask(&v1::Scheduler::Stub::RecoverJob, request);
}

absl::StatusOr<v1::ReadTaskLogResponse> SchedulerClient::ReadKeptLog(
    const v1::ReadTaskLogRequest& request) {
  return AskBy(*logs_stub_, &v1::TaskLogs::Stub::ReadKeptLog, request, kCallTimeout);
}

absl::StatusOr<v1::UploadPieceResponse> SchedulerClient::WriteUpload(
    const v1::UploadPieceRequest& request) {
  return AskBy(*uploads_stub_, &v1::Uploads::Stub::WritePiece, request, kCallTimeout);
}

absl::StatusOr<v1::FinishUploadResponse> SchedulerClient::FinishUpload(
    const v1::FinishUploadRequest& request) {
  return AskBy(*uploads_stub_, &v1::Uploads::Stub::Finish, request, kPullTimeout);
}

absl::StatusOr<v1::ListNodesResponse> SchedulerClient::ListNodes() {
  return Ask(&v1::Scheduler::Stub::ListNodes, v1::ListNodesRequest());
}

absl::StatusOr<v1::GetTablesResponse> SchedulerClient::GetTables(const std::string& job_id) {
  v1::GetTablesRequest request;
  request.set_job_id(job_id);
  return Ask(&v1::Scheduler::Stub::GetTables, request);
}

absl::StatusOr<v1::DrainNodeResponse> SchedulerClient::DrainNode(const std::string& node_id,
                                                                 absl::Duration wait) {
  v1::DrainNodeRequest request;
  request.set_node_id(node_id);
  request.set_wait_limit_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(wait)));
  return Ask(&v1::Scheduler::Stub::DrainNode, request, wait + kCallTimeout);
}

absl::StatusOr<v1::DrainNodeResponse> SchedulerClient::CancelDrain(const std::string& node_id) {
  v1::DrainNodeRequest request;
  request.set_node_id(node_id);
  request.set_cancel(true);
  return Ask(&v1::Scheduler::Stub::DrainNode, request);
}

absl::StatusOr<v1::SaveCheckpointResponse> SchedulerClient::SaveCheckpoint(
    const std::string& job_id, uint64_t asked_id, absl::Duration wait) {
  v1::SaveCheckpointRequest request;
  request.set_job_id(job_id);
  request.set_asked_id(asked_id);
  request.set_wait_limit_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(wait)));
  return Ask(&v1::Scheduler::Stub::SaveCheckpoint, request, wait + kCallTimeout);
}

ServerClient::ServerClient(const std::string& name, const std::string& address,
                           const Credentials* credentials)
    : name_(absl::StrCat("server ", name, " at ", address)),
      stub_(v1::ParameterServer::NewStub(
          MakeChannel(address, ChannelKind::kData, credentials, {PeerRole::kServer, name}))) {}

absl::StatusOr<v1::DescribeTablesResponse> ServerClient::DescribeTables(const std::string& job_id) {
  v1::DescribeTablesRequest request;
  request.set_job_id(job_id);
  auto response = Call<v1::DescribeTablesResponse>(
      *stub_, &v1::ParameterServer::Stub::DescribeTables, request, kCallTimeout);
  if (!response.ok()) return ExplainPeer(response.status(), name_);
  return response;
}

absl::StatusOr<v1::DescribeTrafficResponse> ServerClient::DescribeTraffic() {
  auto response =
      Call<v1::DescribeTrafficResponse>(*stub_, &v1::ParameterServer::Stub::DescribeTraffic,
                                        v1::DescribeTrafficRequest(), kCallTimeout);
  if (!response.ok()) return ExplainPeer(response.status(), name_);
  return response;
}

absl::StatusOr<v1::PullResponse> ServerClient::Pull(const v1::PullRequest& request,
                                                    const std::string& capability) {
  auto response = Call<v1::PullResponse>(*stub_, &v1::ParameterServer::Stub::Pull, request,
                                         kPullTimeout, capability);
  if (!response.ok()) return ExplainPeer(response.status(), name_);
  return response;
}

WorkerClient::WorkerClient(const std::string& name, const std::string& address,
                           const Credentials* credentials)
    : name_(absl::StrCat("worker ", name, " at ", address)),
      stub_(v1::Worker::NewStub(
          MakeChannel(address, ChannelKind::kControl, credentials, {PeerRole::kWorker, name}))) {}

absl::StatusOr<v1::ReadTaskLogResponse> WorkerClient::ReadTaskLog(
    const v1::ReadTaskLogRequest& request) {
  auto response =
      Call<v1::ReadTaskLogResponse>(*stub_, &v1::Worker::Stub::ReadTaskLog, request, kCallTimeout);
  if (!response.ok()) return ExplainPeer(response.status(), name_);
  return response;
}

}  // namespace capstan::cli
