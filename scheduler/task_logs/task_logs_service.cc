#include "scheduler/task_logs/task_logs_service.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/net/gate/call_gate.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"

namespace capstan::scheduler {
namespace {

constexpr int64_t kPieceBytesMax = 256 << 10;
constexpr int kReadBytesDefault = 64 << 10;
constexpr int kReadBytesMax = 1 << 20;

absl::Status Wrong(absl::string_view field, int64_t value, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, ", expected ", expected));
}

}  // namespace

TaskLogsService::TaskLogsService(KeptLogs::Options options, Rights rights)
    : rights_(std::move(rights)), logs_(std::move(options)), thread_(kQueueMax) {}

TaskLogsService::~TaskLogsService() { Stop(); }

absl::Status TaskLogsService::Start() {
  CAPSTAN_RETURN_IF_ERROR(logs_.Open(rights_.is_known));
  thread_.Start();
  return absl::OkStatus();
}

void TaskLogsService::Stop() { thread_.Stop(); }

// If the queue is full, the logs stay until the next scheduler starts or their space is needed.
void TaskLogsService::Forget(const JobId& job) {
  thread_.TryPost([this, job] {
    logs_.Remove(job);
    writers_.erase(job);
  });
}

grpc::ServerUnaryReactor* TaskLogsService::Run(grpc::CallbackServerContext* context,
                                               std::function<absl::Status(const Caller&)> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (thread_.TryPost([reactor, caller = CallerOf(*context), work = std::move(work)] {
        reactor->Finish(ToGrpcStatus(work(caller)));
      })) {
    return reactor;
  }
  reactor->Finish(ToGrpcStatus(absl::UnavailableError(
      absl::StrCat("more than ", kQueueMax, " parts of logs wait; ask again"))));
  return reactor;
}

absl::Status TaskLogsService::CheckMayKeep(const v1::KeepTaskLogRequest& request,
                                           const Caller& caller) {
  // This check also makes sure that the id is a plain name, as all ids of known jobs are.
  if (!rights_.is_known(request.job_id())) {
    return absl::NotFoundError(absl::StrCat("there is no job \"", request.job_id(), "\""));
  }
  if (!caller.has_value()) return absl::OkStatus();
  const Rank rank(request.rank());
  const Incarnation incarnation(request.incarnation());
  auto& writers = writers_[request.job_id()];
  const auto known = writers.find({rank, incarnation});
  if (known != writers.end() && known->second == caller->name) return absl::OkStatus();
  if (rights_.may_keep(request.job_id(), rank, incarnation, caller)) {
    writers[{rank, incarnation}] = caller->name;
    return absl::OkStatus();
  }
  const absl::Status status = absl::PermissionDeniedError(
      absl::StrCat("incarnation ", incarnation.value(), " of task ", rank.value(), " of ",
                   request.job_id(), " does not run on the caller, ", FormatIdentity(*caller)));
  LogWarning({.job = request.job_id()}, "refused: {}", std::string(status.message()));
  return status;
}

absl::Status TaskLogsService::Keep(const v1::KeepTaskLogRequest& request, const Caller& caller,
                                   v1::KeepTaskLogResponse& response) {
  if (request.rank() < 0) return Wrong("rank", request.rank(), "at least 0");
  if (request.incarnation() == 0) return Wrong("incarnation", 0, "at least 1");
  if (request.offset() < 0) return Wrong("offset", request.offset(), "at least 0");
  const auto bytes = static_cast<int64_t>(request.data().size());
  if (bytes > kPieceBytesMax) {
    return Wrong("data", bytes, absl::StrCat("at most ", kPieceBytesMax, " bytes"));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckMayKeep(request, caller));
  CAPSTAN_ASSIGN_OR_RETURN(const int64_t end, logs_.Keep(request.job_id(), Rank(request.rank()),
                                                         Incarnation(request.incarnation()),
                                                         request.offset(), request.data()));
  response.set_next_offset(end);
  return absl::OkStatus();
}

absl::Status TaskLogsService::Read(const v1::ReadTaskLogRequest& request, const Caller& caller,
                                   v1::ReadTaskLogResponse& response) {
  if (request.bytes_max() < 0 || request.bytes_max() > kReadBytesMax) {
    return Wrong("bytes_max", request.bytes_max(), absl::StrCat("0 to ", kReadBytesMax));
  }
  // The answer about another user's job is the same as about a job without logs.
  if (caller.has_value() && !rights_.may_read(request.job_id(), caller)) {
    return NoKeptLog(request.job_id(), Rank(request.rank()));
  }
  CAPSTAN_ASSIGN_OR_RETURN(
      KeptLogs::Part part,
      logs_.Read(request.job_id(), Rank(request.rank()), Incarnation(request.incarnation()),
                 request.offset(),
                 request.bytes_max() == 0 ? kReadBytesDefault : request.bytes_max()));
  response.set_next_offset(part.next_offset);
  response.set_incarnation(part.incarnation.value());
  response.set_data(std::move(part.data));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* TaskLogsService::KeepTaskLog(grpc::CallbackServerContext* context,
                                                       const v1::KeepTaskLogRequest* request,
                                                       v1::KeepTaskLogResponse* response) {
  return Run(context, [this, request, response](const Caller& caller) {
    return Keep(*request, caller, *response);
  });
}

grpc::ServerUnaryReactor* TaskLogsService::ReadKeptLog(grpc::CallbackServerContext* context,
                                                       const v1::ReadTaskLogRequest* request,
                                                       v1::ReadTaskLogResponse* response) {
  return Run(context, [this, request, response](const Caller& caller) {
    return Read(*request, caller, *response);
  });
}

}  // namespace capstan::scheduler
