#include "worker/client/transport/server_transport.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <numeric>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/cord.h"
#include "common/net/data/data_caller.h"
#include "common/net/frame/frame.h"
#include "common/net/frame/frame_reader.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/capability_metadata.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/shared_memory/shared_values.h"
#include "common/status/status_macros.h"
#include "common/wire/message_checksum.h"

namespace capstan::worker {
namespace {

using Answer = Transfer::Answer;

SharedMemoryConnection::Direction DirectionOf(OpKind kind) {
  return kind == OpKind::kPush ? SharedMemoryConnection::Direction::kPush
                               : SharedMemoryConnection::Direction::kPull;
}

absl::Cord PayloadOf(const PushMessage& push) { return Encode(push); }
absl::Cord PayloadOf(const v1::PullRequest& pull) { return absl::Cord(pull.SerializeAsString()); }

absl::StatusOr<Answer> DecodeAnswer(OpKind kind, const absl::Cord& payload) {
  if (kind == OpKind::kPull) {
    CAPSTAN_ASSIGN_OR_RETURN(PullAnswer answer, DecodePullAnswer(payload));
    return answer;
  }
  v1::PushResponse response;
  if (response.ParseFromString(std::string(payload))) return response;
  return absl::InternalError("answered what is no PushResponse");
}

Answer Received(v1::PushResponse response) { return response; }
Answer Received(v1::PullResponse response) { return Detach(std::move(response)); }

// True if a call that ended here with this status may still run at the server.
bool MayStillRun(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace

// ---------------------------------------------------------------- transfers

class ServerTransport::ServerTransfer final : public Transfer {
 public:
  ServerTransfer(ServerTransport* transport, OpKind kind) : transport_(*transport), kind_(kind) {}

  bool TakeRoom(int64_t bytes) override {
    lease_ = transport_.shared_memory_.Take(DirectionOf(kind_), bytes);
    return static_cast<bool>(lease_);
  }
  bool Start(Request request, Done done) override;
  void Cancel() override;
  void End() override {
    transport_.under_way_ -= under_way_;
    if (may_still_run_) lease_.Abandon();
    lease_.GiveBack();
  }

 private:
  // The values lie in the room instead of the message.
  void PutInRoom(Request* request) const;
  bool StartData(std::shared_ptr<DataCaller> data, const Request& request, const Done& done);
  void StartGrpc(Request request, absl::Duration timeout, Done done);
  template <typename Response>
  std::function<void(grpc::Status)> OnGrpcDone(Response* response, Done done);
  void OnDone(absl::StatusOr<Answer> answer, const Done& done);

  ServerTransport& transport_;
  const OpKind kind_;
  SharedMemoryConnection::Lease lease_;  // The room of its values; may be none.
  int64_t under_way_ = 0;                // Its bytes of the transport's under_way_.
  bool may_still_run_ = false;           // At the server, although it has ended here.

  grpc::ClientContext context_;
  v1::PushRequest push_;
  v1::PushResponse pushed_;
  v1::PullRequest pull_;
  v1::PullResponse pulled_;
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<DataCaller> data_ ABSL_GUARDED_BY(mutex_);  // Null: over gRPC, or not begun.
  DataCaller::CallId id_ ABSL_GUARDED_BY(mutex_) = 0;
};

void ServerTransport::ServerTransfer::PutInRoom(Request* request) const {
  if (auto* const push = std::get_if<PushMessage>(&request->message)) {
    PutValues(lease_.room(), push);
  } else {
    NameRoom(lease_.room(), request->sizes, &std::get<v1::PullRequest>(request->message));
  }
}

void ServerTransport::ServerTransfer::OnDone(absl::StatusOr<Answer> answer, const Done& done) {
  may_still_run_ = MayStillRun(answer.status());
  if (answer.ok() && lease_ && kind_ == OpKind::kPull) {
    const absl::Status taken = TakeValues(lease_.room().segment, &std::get<PullAnswer>(*answer));
    if (!taken.ok()) answer = taken;
  }
  done(std::move(answer));
}

bool ServerTransport::ServerTransfer::Start(Request request, Done done) {
  if (lease_) {
    PutInRoom(&request);
  } else {
    under_way_ = std::accumulate(request.sizes.begin(), request.sizes.end(), int64_t{0});
  }
  const int64_t under_way = transport_.under_way_.fetch_add(under_way_) + under_way_;
  Done ended = [this, done = std::move(done)](absl::StatusOr<Answer> answer) {
    OnDone(std::move(answer), done);
  };
  auto data =
      transport_.data_pool_.For(kind_ == OpKind::kPush ? DataMethod::kPush : DataMethod::kPull);
  if (data != nullptr && StartData(std::move(data), request, ended)) return true;
  const absl::Duration moving = absl::Seconds(under_way / kSlowestBytesASecond);
  const absl::Duration timeout = request.timeout + moving;
  StartGrpc(std::move(request), timeout, std::move(ended));
  return false;
}

bool ServerTransport::ServerTransfer::StartData(std::shared_ptr<DataCaller> data,
                                                const Request& request, const Done& done) {
  const std::optional<DataCaller::CallId> id = data->Start(
      {.method = kind_ == OpKind::kPush ? DataMethod::kPush : DataMethod::kPull,
       .bytes = std::visit([](const auto& message) { return PayloadOf(message); }, request.message),
       .timeout = request.timeout,
       .patience = request.patience,
       .places = request.places},
      [kind = kind_, done](const absl::StatusOr<absl::Cord>& payload) {
        done(payload.ok() ? DecodeAnswer(kind, *payload) : payload.status());
      });
  if (!id.has_value()) return false;
  absl::MutexLock lock(&mutex_);
  if (cancelled_) data->Cancel(*id);
  data_ = std::move(data);
  id_ = *id;
  return true;
}

template <typename Response>
std::function<void(grpc::Status)> ServerTransport::ServerTransfer::OnGrpcDone(Response* response,
                                                                              Done done) {
  return [response, done = std::move(done)](const grpc::Status& status) {
    absl::Status ended = FromGrpcStatus(status);
    if (ended.ok()) ended = CheckIfSealed(*response);
    if (!ended.ok()) return done(ended);
    done(Received(std::move(*response)));
  };
}

void ServerTransport::ServerTransfer::StartGrpc(Request request, absl::Duration timeout,
                                                Done done) {
  v1::ParameterServer::Stub& stub = transport_.NextData();
  SetDeadline(context_, timeout);
  if (transport_.capability_ != nullptr) AddCapability(transport_.capability_(), &context_);
  if (auto* const push = std::get_if<PushMessage>(&request.message)) {
    push_ = Attach(std::move(*push));
    Seal(&push_);
    stub.async()->Push(&context_, &push_, &pushed_, OnGrpcDone(&pushed_, std::move(done)));
  } else {
    pull_ = std::get<v1::PullRequest>(std::move(request.message));
    Seal(&pull_);
    stub.async()->Pull(&context_, &pull_, &pulled_, OnGrpcDone(&pulled_, std::move(done)));
  }
}

void ServerTransport::ServerTransfer::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (data_ != nullptr) {
    data_->Cancel(id_);
  } else {
    context_.TryCancel();
  }
}

// ---------------------------------------------------------------- the transport

struct ServerTransport::Question {
  grpc::ClientContext context;
  v1::GetRoutingRequest request;
  v1::GetRoutingResponse response;
};

ServerTransport::ServerTransport(const Options& options)
    : capability_(options.capability),
      control_(v1::ParameterServer::NewStub(MakeChannel(options.address, ChannelKind::kControl,
                                                        options.credentials,
                                                        {PeerRole::kServer, options.node}))),
      shared_memory_({.stub = control_.get(),
                      .server = options.address,
                      .on_change = options.on_change,
                      .capability = options.capability}),
      data_pool_({.stub = control_.get(),
                  .server = options.address,
                  .clock = options.clock,
                  .enabled = options.data_connections,
                  .credentials = options.credentials,
                  .node = options.node,
                  .capability = options.capability}) {
  for (auto& stub : data_) {
    stub = v1::ParameterServer::NewStub(MakeChannel(options.address, ChannelKind::kData,
                                                    options.credentials,
                                                    {PeerRole::kServer, options.node}));
  }
}

void ServerTransport::Close() {
  {
    absl::MutexLock lock(&mutex_);
    for (const std::shared_ptr<Question>& question : questions_) question->context.TryCancel();
  }
  tracker_.WaitUntilGone();
  shared_memory_.Close();
  data_pool_.Close();
}

std::shared_ptr<Transfer> ServerTransport::NewTransfer(OpKind kind) {
  return tracker_.Make<ServerTransfer>(this, kind);
}

void ServerTransport::AskRouting(const JobId& job, absl::Duration timeout, RoutingDone done) {
  auto question = tracker_.Make<Question>();
  question->request.set_job_id(job);
  SetDeadline(question->context, timeout);
  {
    absl::MutexLock lock(&mutex_);
    questions_.insert(question);
  }
  control_->async()->GetRouting(
      &question->context, &question->request, &question->response,
      [this, question, done = std::move(done)](const grpc::Status& status) {
        absl::Status ended = FromGrpcStatus(status);
        if (ended.ok()) {
          done(std::move(*question->response.mutable_routing()));
        } else {
          done(ended);
        }
        absl::MutexLock lock(&mutex_);
        questions_.erase(question);
      });
}

bool ServerTransport::MustWaitForRoom(OpKind kind, int64_t bytes) const {
  return shared_memory_.MustWait(DirectionOf(kind), bytes);
}

bool ServerTransport::WantsOffer(Instant now) const {
  return shared_memory_.WantsOffer(now) || data_pool_.WantsOffer(now);
}

void ServerTransport::Offer(Instant now) {
  if (shared_memory_.WantsOffer(now)) shared_memory_.Offer(now);
  data_pool_.Offer(now);
}

bool ServerTransport::HasMoved() {
  const int64_t bytes = data_pool_.BytesMoved();
  return bytes > std::exchange(bytes_moved_, bytes);  // New connections begin at 0.
}

}  // namespace capstan::worker
