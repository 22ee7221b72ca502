#include "server/replication/grpc_replica_transport.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "common/net/data/data_caller.h"
#include "common/net/data/data_connection_pool.h"
#include "common/net/frame/frame.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/time/instant.h"
#include "common/wire/cord_input_stream.h"
#include "common/wire/message_checksum.h"
#include "proto/parameter_server.grpc.pb.h"
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

struct GrpcReplicaTransport::Peer {
  Peer(const v1::ServerAddress& server, const Clock* clock, const Credentials* credentials)
      : stub(v1::ParameterServer::NewStub(MakeChannel(server.address(), ChannelKind::kData,
                                                      credentials,
                                                      {PeerRole::kServer, server.node_id()}))),
        pool({.stub = stub.get(),
              .server = server.address(),
              .clock = clock,
              .to_replica = true,
              .credentials = credentials,
              .node = server.node_id()}) {}

  const std::unique_ptr<v1::ParameterServer::Stub> stub;
  DataConnectionPool pool;
};

struct GrpcReplicaTransport::Call {
  virtual ~Call() = default;
  std::shared_ptr<Peer> peer;
  grpc::ClientContext context;
};

class GrpcReplicaTransport::BatchCall final : public Call {
 public:
  BatchCall(std::vector<ReplicaRequest> requests, SomeDone done)
      : requests_(std::move(requests)), done_(std::move(done)) {
    for (const ReplicaRequest& each : requests_) {
      batch_.mutable_messages()->UnsafeArenaAddAllocated(each.message.get());
    }
  }
  // Releases the messages, which are only lent to the batch.
  ~BatchCall() override {
    while (batch_.messages_size() > 0) batch_.mutable_messages()->UnsafeArenaReleaseLast();
  }

  void Start(GrpcReplicaTransport* transport) {
    transport_ = transport;
    const Instant now = transport->clock_.Now();
    if (peer->pool.WantsOffer(now)) peer->pool.Offer(now);
    const auto timeout =
        kTimeout + TimeOf(static_cast<int64_t>(batch_.ByteSizeLong()), kBytesPerSecond);
    if (StartOnDataConnection(timeout)) return;
    Seal(&batch_);
    SetDeadline(context, timeout);
    // The callback runs on a thread of gRPC's, and the sender holds no lock.
    peer->stub->async()->Replicate(&context, &batch_, &answer_, [this](const grpc::Status& status) {
      End(status.ok() ? CheckArrived(answer_) : FromGrpcStatus(status));
    });
  }

 private:
  // The batch is not sealed, because frames have checksums of their own.
  bool StartOnDataConnection(absl::Duration timeout) {
    const std::shared_ptr<DataCaller> caller = peer->pool.For(DataMethod::kReplicate);
    if (caller == nullptr) return false;
    const DataCaller::Request request{.method = DataMethod::kReplicate,
                                      .bytes = absl::Cord(batch_.SerializeAsString()),
                                      .timeout = timeout,
                                      .patience = absl::ZeroDuration()};
    const auto started = caller->Start(request, [this](const absl::StatusOr<absl::Cord>& bytes) {
      if (!bytes.ok()) return End(bytes.status());
      CordInputStream stream(*bytes);
      const bool parsed = answer_.ParseFromZeroCopyStream(&stream);
      End(parsed ? absl::OkStatus() : absl::InternalError("a replica's answer cannot be read"));
    });
    return started.has_value();
  }

  void End(const absl::Status& status) {
    done_(OutcomesOf(requests_.size(), status, answer_));
    transport_->Leave(this);
  }

  GrpcReplicaTransport* transport_ = nullptr;
  const std::vector<ReplicaRequest> requests_;
  const SomeDone done_;
  v1::ReplicateBatch batch_;
  v1::ReplicateBatchAnswer answer_;
};

// One part is in flight at a time. gRPC calls OnDone last of all.
class GrpcReplicaTransport::InstallCall final : public Call,
                                                public grpc::ClientWriteReactor<v1::InstallPart> {
 public:
  InstallCall(ReplicaRequest request, Moved moved, Done done)
      : request_(std::move(request)), moved_(std::move(moved)), done_(std::move(done)) {}

  void Start(GrpcReplicaTransport* transport) {
    transport_ = transport;
    SetDeadline(context, kInstallTimeout + TimeOf(request_.bytes, kInstallBytesPerSecond));
    head_ = request_.message->SerializeAsString();
    peer->stub->async()->Install(&context, &response_, this);
    WriteNext();
    StartCall();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return;  // OnDone says why.
    moved_(static_cast<int64_t>(part_.ByteSizeLong()));
    if (!part_.end()) WriteNext();
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status outcome = failure_;
    if (outcome.ok()) outcome = status.ok() ? CheckArrived(response_) : FromGrpcStatus(status);
    done_(outcome, response_);
    transport_->Leave(this);
  }

 private:
  void WriteNext() {
    part_.Clear();
    if (head_sent_ == 0) {
      part_.set_job_id(request_.message->job_id());
      part_.set_request_bytes(static_cast<int64_t>(head_.size()));
    }
    if (head_sent_ < head_.size()) {
      part_.set_request(head_.substr(head_sent_, kPartBytes));
      head_sent_ += part_.request().size();
    } else if (request_.rows != nullptr) {
      absl::StatusOr<std::optional<v1::ShardSnapshot>> piece = request_.rows->Next();
      if (!piece.ok()) {
        failure_ = piece.status();
        return context.TryCancel();
      }
      if (piece->has_value()) *part_.mutable_piece() = **std::move(piece);
      if (!piece->has_value()) request_.rows.reset();
    }
    part_.set_end(head_sent_ == head_.size() && request_.rows == nullptr);
    Seal(&part_);
    part_.end() ? StartWriteLast(&part_, {}) : StartWrite(&part_);
  }

  ReplicaRequest request_;
  const Moved moved_;
  const Done done_;
  v1::ReplicateResponse response_;
  GrpcReplicaTransport* transport_ = nullptr;
  std::string head_;  // The request without the rows of a bucket.
  size_t head_sent_ = 0;
  v1::InstallPart part_;
  absl::Status failure_;  // It is not OK if rows could not be read.
};

GrpcReplicaTransport::~GrpcReplicaTransport() { Stop(); }

void GrpcReplicaTransport::Send(const v1::ServerAddress& to, ReplicaRequest request, Moved moved,
                                Done done) {
  if (!request.message->has_install()) {
    return SendTogether(to, {std::move(request)},
                        [done = std::move(done)](absl::Span<const ReplicaOutcome> outcomes) {
                          done(outcomes[0].status, outcomes[0].response);
                        });
  }
  const auto call =
      std::make_shared<InstallCall>(std::move(request), std::move(moved), std::move(done));
  if (Enter(to, call)) call->Start(this);
}

void GrpcReplicaTransport::SendTogether(const v1::ServerAddress& to,
                                        std::vector<ReplicaRequest> requests, SomeDone done) {
  const auto call = std::make_shared<BatchCall>(std::move(requests), std::move(done));
  if (Enter(to, call)) call->Start(this);
}

bool GrpcReplicaTransport::Enter(const v1::ServerAddress& to, const std::shared_ptr<Call>& call) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return false;
  std::shared_ptr<Peer>& peer = peers_[{to.node_id(), to.address()}];
  if (peer == nullptr) peer = std::make_shared<Peer>(to, &clock_, credentials_);
  call->peer = peer;
  calls_[call.get()] = call;
  return true;
}

void GrpcReplicaTransport::Leave(Call* call) {
  std::shared_ptr<Call> last;  // It is destroyed after the lock is released.
  absl::MutexLock lock(&mutex_);
  const auto it = calls_.find(call);
  last = std::move(it->second);
  calls_.erase(it);
}

void GrpcReplicaTransport::Stop() {
  std::vector<std::shared_ptr<Peer>> peers;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    for (const auto& [key, call] : calls_) call->context.TryCancel();
    for (const auto& [address, peer] : peers_) peers.push_back(peer);
  }
  for (const std::shared_ptr<Peer>& peer : peers) peer->pool.Close();  // Ends the calls on it.
  absl::MutexLock lock(&mutex_);
  const auto none_left = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  mutex_.Await(absl::Condition(&none_left));
}

}  // namespace capstan::server
