#include "worker/client/value_call.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "common/net/channel.h"
#include "common/net/frame.h"
#include "common/net/grpc_status.h"
#include "common/status/status_macros.h"
#include "common/wire/message_checksum.h"

namespace capstan::worker {
namespace {

absl::Cord PayloadOf(const PushMessage& push) { return Encode(push); }
absl::Cord PayloadOf(const v1::PullRequest& pull) { return absl::Cord(pull.SerializeAsString()); }

absl::StatusOr<ValueCall::Answer> DecodeAnswer(bool is_push, const absl::Cord& payload) {
  if (!is_push) {
    CAPSTAN_ASSIGN_OR_RETURN(PullAnswer answer, DecodePullAnswer(payload));
    return answer;
  }
  v1::PushResponse response;
  if (response.ParseFromString(std::string(payload))) return response;
  return absl::InternalError("answered what is no PushResponse");
}

ValueCall::Answer Received(v1::PushResponse response) { return response; }
ValueCall::Answer Received(v1::PullResponse response) { return Detach(std::move(response)); }

}  // namespace

bool ValueCall::StartData(std::shared_ptr<DataCaller> data, const Request& request,
                          const Done& done) {
  const bool is_push = std::holds_alternative<PushMessage>(request.message);
  const std::optional<DataCaller::CallId> id = data->Start(
      {.method = is_push ? DataMethod::kPush : DataMethod::kPull,
       .bytes = std::visit([](const auto& message) { return PayloadOf(message); }, request.message),
       .timeout = request.timeout,
       .patience = request.patience,
       .places = request.places},
      [is_push, done](const absl::StatusOr<absl::Cord>& payload) {
        done(payload.ok() ? DecodeAnswer(is_push, *payload) : payload.status());
      });
  if (!id.has_value()) return false;
  absl::MutexLock lock(&mutex_);
  if (cancelled_) data->Cancel(*id);
  data_ = std::move(data);
  id_ = *id;
  return true;
}

template <typename Response>
std::function<void(grpc::Status)> ValueCall::OnGrpcDone(Response* response, Done done) {
  return [response, done = std::move(done)](const grpc::Status& status) {
    absl::Status ended = FromGrpcStatus(status);
    if (ended.ok()) ended = CheckIfSealed(*response);
    if (!ended.ok()) return done(ended);
    done(Received(std::move(*response)));
  };
}

bool ValueCall::Start(std::shared_ptr<DataCaller> data, v1::ParameterServer::Stub& grpc,
                      Request request, Done done) {
  if (data != nullptr && StartData(std::move(data), request, done)) return true;
  SetDeadline(context_, request.grpc_timeout);
  if (auto* const push = std::get_if<PushMessage>(&request.message)) {
    push_ = Attach(std::move(*push));
    Seal(&push_);
    grpc.async()->Push(&context_, &push_, &pushed_, OnGrpcDone(&pushed_, std::move(done)));
  } else {
    pull_ = std::get<v1::PullRequest>(std::move(request.message));
    Seal(&pull_);
    grpc.async()->Pull(&context_, &pull_, &pulled_, OnGrpcDone(&pulled_, std::move(done)));
  }
  return false;
}

void ValueCall::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (data_ != nullptr) {
    data_->Cancel(id_);
  } else {
    context_.TryCancel();
  }
}

}  // namespace capstan::worker
