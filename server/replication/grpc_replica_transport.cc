#include "server/replication/grpc_replica_transport.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <optional>
#include <utility>

#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/wire/message_checksum.h"
#include "server/replication/replica_checks.h"

namespace capstan::server {
namespace {

constexpr int64_t kBytesPerSecond = 16 << 20;
constexpr int64_t kInstallBytesPerSecond = 256 << 10;
constexpr size_t kPartBytes = 1 << 20;

absl::Duration TimeOf(int64_t bytes, int64_t bytes_per_second) {
  return absl::Seconds(static_cast<double>(bytes) / static_cast<double>(bytes_per_second));
}

}  // namespace

struct GrpcReplicaTransport::Call {
  virtual ~Call() = default;
  std::shared_ptr<Stub> stub;
  grpc::ClientContext context;
  ReplicaRequest request;
  v1::ReplicateResponse response;
  Done done;

  // Of the call, and of what its answer brought.
  absl::Status StatusOf(const grpc::Status& status) const {
    return status.ok() ? CheckArrived(response) : FromGrpcStatus(status);
  }
};

class GrpcReplicaTransport::MessageCall final : public Call {
 public:
  void Start(GrpcReplicaTransport* transport) {
    const auto bytes = static_cast<int64_t>(request.message->ByteSizeLong());
    SetDeadline(context, kTimeout + TimeOf(bytes, kBytesPerSecond));
    Seal(request.message.get());
    // The callback runs on a thread of gRPC's; whoever sends holds no lock.
    stub->async()->Replicate(&context, request.message.get(), &response,
                             [this, transport](const grpc::Status& status) {
                               done(StatusOf(status), response);
                               transport->Leave(this);
                             });
  }
};

// One part is on its way at a time. gRPC calls OnDone last of all.
class GrpcReplicaTransport::InstallCall final : public Call,
                                                public grpc::ClientWriteReactor<v1::InstallPart> {
 public:
  explicit InstallCall(Moved moved) : moved_(std::move(moved)) {}

  void Start(GrpcReplicaTransport* transport) {
    transport_ = transport;
    SetDeadline(context, kInstallTimeout + TimeOf(request.bytes, kInstallBytesPerSecond));
    head_ = request.message->SerializeAsString();
    stub->async()->Install(&context, &response, this);
    WriteNext();
    StartCall();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return;  // OnDone says why.
    moved_(static_cast<int64_t>(part_.ByteSizeLong()));
    if (!part_.end()) WriteNext();
  }

  void OnDone(const grpc::Status& status) override {
    done(failure_.ok() ? StatusOf(status) : failure_, response);
    transport_->Leave(this);
  }

 private:
  void WriteNext() {
    part_.Clear();
    if (head_sent_ == 0) {
      part_.set_job_id(request.message->job_id());
      part_.set_request_bytes(static_cast<int64_t>(head_.size()));
    }
    if (head_sent_ < head_.size()) {
      part_.set_request(head_.substr(head_sent_, kPartBytes));
      head_sent_ += part_.request().size();
    } else if (request.rows != nullptr) {
      absl::StatusOr<std::optional<v1::ShardSnapshot>> piece = request.rows->Next();
      if (!piece.ok()) {
        failure_ = piece.status();
        return context.TryCancel();
      }
      if (piece->has_value()) *part_.mutable_piece() = **std::move(piece);
      if (!piece->has_value()) request.rows.reset();
    }
    part_.set_end(head_sent_ == head_.size() && request.rows == nullptr);
    Seal(&part_);
    part_.end() ? StartWriteLast(&part_, {}) : StartWrite(&part_);
  }

  const Moved moved_;
  GrpcReplicaTransport* transport_ = nullptr;
  std::string head_;  // The request without the rows of a bucket.
  size_t head_sent_ = 0;
  v1::InstallPart part_;
  absl::Status failure_;  // Rows could not be read.
};

GrpcReplicaTransport::~GrpcReplicaTransport() { Stop(); }

void GrpcReplicaTransport::Send(const v1::ServerAddress& to, ReplicaRequest request, Moved moved,
                                Done done) {
  const auto enter = [&](const auto& call) {
    call->request = std::move(request);
    call->done = std::move(done);
    call->stub = Enter(to.address(), call);
    return call->stub != nullptr;  // Else the process ends: nobody is left to be told.
  };
  if (request.message->has_install()) {
    const auto call = std::make_shared<InstallCall>(std::move(moved));
    if (enter(call)) call->Start(this);
  } else {
    const auto call = std::make_shared<MessageCall>();
    if (enter(call)) call->Start(this);
  }
}

std::shared_ptr<GrpcReplicaTransport::Stub> GrpcReplicaTransport::Enter(
    const std::string& address, const std::shared_ptr<Call>& call) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return nullptr;
  std::shared_ptr<Stub>& stub = stubs_[address];
  if (stub == nullptr)
    stub = v1::ParameterServer::NewStub(MakeChannel(address, ChannelKind::kData));
  calls_[call.get()] = call;
  return stub;
}

void GrpcReplicaTransport::Leave(Call* call) {
  std::shared_ptr<Call> last;  // Goes after the lock.
  absl::MutexLock lock(&mutex_);
  const auto it = calls_.find(call);
  last = std::move(it->second);
  calls_.erase(it);
}

void GrpcReplicaTransport::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  for (const auto& [key, call] : calls_) call->context.TryCancel();
  const auto none_left = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  mutex_.Await(absl::Condition(&none_left));
}

}  // namespace capstan::server
