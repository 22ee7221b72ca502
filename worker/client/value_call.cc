#include "worker/client/value_call.h"

#include <optional>
#include <utility>

#include "common/net/channel.h"
#include "common/net/cord_buffer.h"
#include "common/net/frame.h"
#include "common/net/grpc_status.h"
#include "common/wire/tensor_message.h"

namespace capstan::worker {
namespace {

const char* PathOf(DataMethod method) {
  switch (method) {
    case DataMethod::kPush:
      return "/capstan.v1.ParameterServer/Push";
    case DataMethod::kPull:
      return "/capstan.v1.ParameterServer/Pull";
    case DataMethod::kPushPull:
      return "/capstan.v1.ParameterServer/PushPull";
    case DataMethod::kReplicate:
      break;  // No client's.
  }
  return "";
}

}  // namespace

bool ValueCall::Start(std::shared_ptr<DataCaller> data, grpc::GenericStub& grpc,
                      const DataCaller::Request& request, absl::Duration grpc_timeout, Done done) {
  if (data != nullptr) {
    const std::optional<DataCaller::CallId> id = data->Start(request, done);
    if (id.has_value()) {
      absl::MutexLock lock(&mutex_);
      if (cancelled_) data->Cancel(*id);
      data_ = std::move(data);
      id_ = *id;
      return true;
    }
  }
  request_ = ToByteBuffer(Sealed(request.bytes));
  SetDeadline(context_, grpc_timeout);
  grpc.UnaryCall(&context_, PathOf(request.method), {}, &request_, &response_,
                 [this, done = std::move(done)](const grpc::Status& status) {
                   if (status.ok()) {
                     done(ToCord(response_));
                   } else {
                     done(FromGrpcStatus(status));
                   }
                 });
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
