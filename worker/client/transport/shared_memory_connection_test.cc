#include "worker/client/transport/shared_memory_connection.h"

#include <memory>
#include <string>

#include "common/net/grpc/channel.h"
#include "common/net/grpc/grpc_server.h"
#include "common/shared_memory/shared_segment.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"

namespace capstan::worker::shared_memory_connection_test {
namespace {

using Direction = SharedMemoryConnection::Direction;

constexpr int64_t kBytes = 1 << 20;
constexpr absl::Duration kPatience = absl::Seconds(20);

// A server that opens the memory that it is offered, and answers as told.
class FakeServer final : public v1::ParameterServer::Service {
 public:
  grpc::Status ShareMemory(grpc::ServerContext* context, const v1::ShareMemoryRequest* request,
                           grpc::ServerWriter<v1::ShareMemoryResponse>* writer) override {
    v1::ShareMemoryResponse response;
    {
      absl::MutexLock lock(&mutex_);
      ++offers_;
      if (!refusal_.ok()) return refusal_;
      auto opened = SharedSegment::Open({.process = request->process(),
                                         .descriptor = request->file_descriptor(),
                                         .bytes = request->bytes(),
                                         .challenge = request->challenge()});
      if (!opened.ok()) return {grpc::StatusCode::INTERNAL, opened.status().ToString()};
      segment_ = *opened;
      response.set_segment(static_cast<uint64_t>(offers_));
      response.set_proof(lie_ ? "0123456789abcdef" : segment_->proof());
    }
    writer->Write(response);
    absl::MutexLock lock(&mutex_);
    while (!context->IsCancelled() && !hang_up_) {
      changed_.WaitWithTimeout(&mutex_, absl::Milliseconds(5));
    }
    hang_up_ = false;
    return {grpc::StatusCode::UNAVAILABLE, "stopped"};
  }

  void Refuse(const grpc::Status& status) {
    absl::MutexLock lock(&mutex_);
    refusal_ = status;
  }
  void Lie() {
    absl::MutexLock lock(&mutex_);
    lie_ = true;
  }
  void HangUp() {
    absl::MutexLock lock(&mutex_);
    hang_up_ = true;
    changed_.SignalAll();
  }
  int offers() {
    absl::MutexLock lock(&mutex_);
    return offers_;
  }
  std::shared_ptr<SharedSegment> segment() {
    absl::MutexLock lock(&mutex_);
    return segment_;
  }

 private:
  absl::Mutex mutex_;
  absl::CondVar changed_;
  grpc::Status refusal_;
  bool lie_ = false;
  bool hang_up_ = false;
  int offers_ = 0;
  std::shared_ptr<SharedSegment> segment_;
};

class Fixture {
 public:
  Fixture() {
    auto started = GrpcServer::Start({.services = {&fake}});
    REQUIRE_OK(started);
    server_ = *std::move(started);
    stub_ = v1::ParameterServer::NewStub(MakeChannel(server_->address(), ChannelKind::kControl));
    connection = std::make_unique<SharedMemoryConnection>(SharedMemoryConnection::Options{
        .stub = stub_.get(), .server = "server-1", .on_change = [this] {
          absl::MutexLock lock(&mutex_);
          ++changes_;
        }});
    connection->SetSize(kBytes);
  }

  // Offers at a time when a new offer is due, and waits for `changes` calls of on_change.
  void Offer(int changes = 1) {
    now_ = now_ + absl::Seconds(2);
    REQUIRE(connection->WantsOffer(now_));
    connection->Offer(now_);
    AwaitChanges(changes);
  }
  void AwaitChanges(int count) {
    absl::MutexLock lock(&mutex_);
    seen_ += count;
    auto enough = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return changes_ >= seen_; };
    REQUIRE(mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience));
  }
  Instant later() { return now_ + absl::Seconds(100); }

  FakeServer fake;

 private:
  absl::Mutex mutex_;
  int changes_ ABSL_GUARDED_BY(mutex_) = 0;
  int seen_ = 0;
  Instant now_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::ParameterServer::Stub> stub_;

 public:
  std::unique_ptr<SharedMemoryConnection> connection;  // Declared last: it uses the others.
};

TEST_CASE(
    "Shared memory connection: nothing is there to take before the server has shown its proof",
    "[shared_memory]") {
  Fixture f;
  CHECK_FALSE(f.connection->Take(Direction::kPush, 100));
  CHECK_FALSE(f.connection->MustWait(Direction::kPush, 100));
  f.Offer();
  const SharedMemoryConnection::Lease lease = f.connection->Take(Direction::kPush, 100);
  REQUIRE(lease);
  CHECK(lease.room().name == 1);
  lease.room().segment->data()[lease.room().offset] = 'x';
  CHECK(f.fake.segment()->data()[lease.room().offset] == 'x');
  CHECK_FALSE(f.connection->WantsOffer(f.later()));
}

TEST_CASE("Shared memory connection: pushes and pulls have a half each, and wait for their own",
          "[shared_memory]") {
  Fixture f;
  f.Offer();
  SharedMemoryConnection::Lease push = f.connection->Take(Direction::kPush, kBytes / 2);
  REQUIRE(push);
  CHECK(push.room().offset == 0);
  CHECK_FALSE(f.connection->Take(Direction::kPush, 1));
  CHECK(f.connection->MustWait(Direction::kPush, 1));
  CHECK_FALSE(f.connection->MustWait(Direction::kPull, kBytes / 2));
  const SharedMemoryConnection::Lease pull = f.connection->Take(Direction::kPull, kBytes / 2);
  REQUIRE(pull);
  CHECK(pull.room().offset == kBytes / 2);
  push.GiveBack();
  CHECK_FALSE(push);
  CHECK_FALSE(f.connection->MustWait(Direction::kPush, kBytes / 2));
  // This will never fit, so there is nothing to wait for.
  CHECK_FALSE(f.connection->MustWait(Direction::kPush, kBytes / 2 + 1));
  CHECK_FALSE(f.connection->Take(Direction::kPush, kBytes / 2 + 1));
}

TEST_CASE("Shared memory connection: a server of another host or user is offered nothing again",
          "[shared_memory]") {
  Fixture f;
  f.fake.Refuse({GENERATE(grpc::StatusCode::NOT_FOUND, grpc::StatusCode::PERMISSION_DENIED,
                          grpc::StatusCode::UNIMPLEMENTED),
                 "no"});
  f.Offer();
  CHECK_FALSE(f.connection->Take(Direction::kPush, 100));
  CHECK_FALSE(f.connection->WantsOffer(f.later()));
}

TEST_CASE("Shared memory connection: a server that cannot now is offered memory again",
          "[shared_memory]") {
  Fixture f;
  f.fake.Refuse({grpc::StatusCode::UNAVAILABLE, "not yet"});
  f.Offer();
  f.fake.Refuse(grpc::Status::OK);
  f.Offer();
  CHECK(f.connection->Take(Direction::kPush, 100));
  CHECK(f.fake.offers() == 2);
}

TEST_CASE("Shared memory connection: a server that cannot prove what it opened gets nothing",
          "[shared_memory]") {
  Fixture f;
  f.fake.Lie();
  f.Offer();
  CHECK_FALSE(f.connection->Take(Direction::kPush, 100));
  CHECK_FALSE(f.connection->WantsOffer(f.later()));
}

TEST_CASE("Shared memory connection: what a message used whose fate is unknown is never used again",
          "[shared_memory]") {
  Fixture f;
  f.Offer();
  SharedMemoryConnection::Lease other = f.connection->Take(Direction::kPush, 100);
  SharedMemoryConnection::Lease lost = f.connection->Take(Direction::kPull, 100);
  const std::shared_ptr<SharedSegment> old = lost.room().segment;
  lost.Abandon();
  CHECK_FALSE(f.connection->Take(Direction::kPush, 100));
  CHECK_FALSE(f.connection->MustWait(Direction::kPush, kBytes / 2));
  other.room().segment->data()[0] = 'x';  // Other leases keep their room, and so does the server.
  CHECK(f.fake.segment()->data()[0] == 'x');
  other.GiveBack();
  f.AwaitChanges(1);  // The stream has ended.
  f.Offer();
  const SharedMemoryConnection::Lease lease = f.connection->Take(Direction::kPush, 100);
  REQUIRE(lease);
  CHECK(lease.room().name == 2);
  CHECK(lease.room().segment != old);
}

TEST_CASE("Shared memory connection: when the server goes, memory is offered again a second later",
          "[shared_memory]") {
  Fixture f;
  f.Offer();
  f.fake.HangUp();
  f.AwaitChanges(1);
  CHECK_FALSE(f.connection->Take(Direction::kPush, 100));
  CHECK_FALSE(f.connection->WantsOffer(Instant() + absl::Seconds(2.5)));
  f.Offer();
  CHECK(f.connection->Take(Direction::kPush, 100));
}

TEST_CASE("Shared memory connection: a size of nothing ends it, a larger one replaces the segment",
          "[shared_memory]") {
  Fixture f;
  f.Offer();
  f.connection->SetSize(kBytes + 1);  // Too little more to replace the segment.
  CHECK(f.connection->Take(Direction::kPush, 100));
  f.connection->SetSize(4 * kBytes);
  f.AwaitChanges(1);
  f.Offer();
  CHECK(f.connection->Take(Direction::kPush, 2 * kBytes));
  f.connection->SetSize(0);
  f.AwaitChanges(1);
  CHECK_FALSE(f.connection->Take(Direction::kPush, 100));
  CHECK_FALSE(f.connection->WantsOffer(f.later()));
}

}  // namespace
}  // namespace capstan::worker::shared_memory_connection_test
