#include "server/replication/install_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/grpc_status.h"
#include "common/status/status_macros.h"

namespace capstan::server {

InstallStream* InstallStream::Open(HeldJobs* jobs, v1::ReplicateResponse* response) {
  auto* stream = new InstallStream(jobs, response);
  stream->StartRead(&stream->part_);
  return stream;
}

void InstallStream::OnReadDone(bool ok) {
  if (!ok) return Finish(ToGrpcStatus(absl::AbortedError("a shard broke off before its end")));
  const absl::Status status = Take();
  if (!status.ok()) return Finish(ToGrpcStatus(status));
  const bool wanted = request_ == nullptr || made_.has_value();
  if (wanted && !part_.end()) return StartRead(&part_);
  Install();
}

absl::Status InstallStream::Take() {
  if (request_ == nullptr) {
    if (bytes_.size() + part_.request().size() > kRequestBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("a request of more than ", kRequestBytesMax, " bytes beside its rows"));
    }
    bytes_ += part_.request();
    if (!part_.end() && !part_.has_piece()) return absl::OkStatus();
    CAPSTAN_RETURN_IF_ERROR(Begin());
  }
  if (!part_.has_piece() || !made_.has_value()) return absl::OkStatus();
  return made_->RestoreMore(part_.piece());
}

absl::Status InstallStream::Begin() {
  request_ = std::make_unique<v1::ReplicateRequest>();
  if (!request_->ParseFromString(std::exchange(bytes_, {})) || !request_->has_install()) {
    return absl::InvalidArgumentError("an install that is not the bytes of a request with one");
  }
  CAPSTAN_ASSIGN_OR_RETURN(job_, jobs_->Find(request_->job_id()));
  CAPSTAN_ASSIGN_OR_RETURN(made_, job_->BeginInstall(*request_));
  return absl::OkStatus();
}

void InstallStream::Install() {
  // After Finish, which may come in Install, nothing of this is there any more.
  const auto request = std::move(request_);
  const auto job = std::move(job_);
  job->Install(*request, std::move(made_), response_,
               [this](const absl::Status& status) { Finish(ToGrpcStatus(status)); });
}

}  // namespace capstan::server
