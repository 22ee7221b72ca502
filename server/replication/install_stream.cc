#include "server/replication/install_stream.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"
#include "common/wire/message_checksum.h"
#include "common/wire/parsed_size.h"
#include "server/replication/replica_checks.h"

namespace capstan::server {
namespace {

// A request is held twice: as bytes, and parsed. It is parsed from one piece, so that its strings
// take no more than they do in the bytes. Everything else in the parsed request may take a hundred
// times its bytes, if the request is forged: that is counted once the bytes are there (ParsedSize).
constexpr int64_t kCopies = 2;

absl::Status NoRequest() {
  return absl::InvalidArgumentError("an install that is not the bytes of a request with one");
}

absl::StatusOr<int64_t> BytesBesideStrings(const std::string& request) {
  google::protobuf::io::ArrayInputStream stream(request.data(), static_cast<int>(request.size()));
  const std::optional<ParsedSize> size = CountParsed(*v1::ReplicateRequest::descriptor(), &stream);
  if (!size.has_value()) return NoRequest();
  return size->BytesBesideStrings();
}

}  // namespace

InstallStream* InstallStream::Open(HeldJobs* jobs, std::optional<Identity> caller,
                                   v1::ReplicateResponse* response, std::atomic<int64_t>* damaged) {
  auto* stream = new InstallStream(jobs, std::move(caller), response, damaged);
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
  if (const absl::Status arrived = CheckArrived(part_); !arrived.ok()) {
    ++*damaged_;
    LogWarning({.job = job_ == nullptr ? "" : job_->job()}, "{}", std::string(arrived.message()));
    return arrived;
  }
  if (job_ == nullptr) CAPSTAN_RETURN_IF_ERROR(Enter());
  if (request_ == nullptr) {
    if (std::ssize(bytes_) + std::ssize(part_.request()) > request_bytes_) {
      return absl::InvalidArgumentError(absl::StrCat("an install's request of more than the ",
                                                     request_bytes_,
                                                     " bytes that its first part has announced"));
    }
    bytes_ += part_.request();
    if (!part_.end() && !part_.has_piece()) return absl::OkStatus();
    CAPSTAN_RETURN_IF_ERROR(Begin());
  }
  if (!part_.has_piece() || !made_.has_value()) return absl::OkStatus();
  return made_->RestoreMore(part_.piece());
}

absl::Status InstallStream::Enter() {
  CAPSTAN_ASSIGN_OR_RETURN(job_, jobs_->Find(part_.job_id()));
  request_bytes_ = part_.request_bytes();
  if (request_bytes_ < 0 || request_bytes_ > kRequestBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("an install's request of ", request_bytes_,
                                                   " bytes beside its rows, expected at most ",
                                                   kRequestBytesMax));
  }
  CAPSTAN_ASSIGN_OR_RETURN(memory_,
                           job_->replica_calls().install_memory()->Take(kCopies * request_bytes_));
  bytes_.reserve(static_cast<size_t>(request_bytes_));  // Growth would take up to twice as much.
  return absl::OkStatus();
}

absl::Status InstallStream::Begin() {
  CAPSTAN_ASSIGN_OR_RETURN(const int64_t parsed, BytesBesideStrings(bytes_));
  CAPSTAN_ASSIGN_OR_RETURN(parsed_memory_, job_->replica_calls().install_memory()->Take(parsed));
  request_ = std::make_unique<v1::ReplicateRequest>();
  if (!request_->ParseFromString(std::exchange(bytes_, {})) || !request_->has_install()) {
    return NoRequest();
  }
  if (request_->job_id() != job_->job()) {
    return absl::InvalidArgumentError(absl::StrCat("an install of job \"", request_->job_id(),
                                                   "\", its first part has announced \"",
                                                   job_->job(), "\""));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckSender(*request_, caller_));
  CAPSTAN_ASSIGN_OR_RETURN(made_, job_->replica_calls().BeginInstall(*request_));
  return absl::OkStatus();
}

void InstallStream::Install() {
  // Install may call Finish, after which this object may be gone: these two must outlive it.
  const auto request = std::move(request_);
  const auto job = std::move(job_);
  job->replica_calls().Install(*request, std::move(made_), response_,
                               [this](const absl::Status& status) {
                                 if (status.ok()) Seal(response_);
                                 Finish(ToGrpcStatus(status));
                               });
}

}  // namespace capstan::server
