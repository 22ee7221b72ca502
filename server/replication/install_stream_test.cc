// Whole shards from a primary to its replica over loopback connections.
#include "server/replication/install_stream.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "common/wire/message_checksum.h"
#include "server/engine/testing/job_fixture.h"
#include "server/replication/grpc_replica_transport.h"
#include "server/rpc/parameter_service.h"

namespace capstan::server::install_stream_test {
namespace {

constexpr ShardKey kBucket{TableId(1), ShardId(0)};

class Node {
 public:
  explicit Node(NodeId name) : service_(&jobs_) {
    GrpcServer::Options options;
    options.listen = "127.0.0.1:0";
    options.services = {&service_};
    REQUIRE_OK_AND_ASSIGN(server_, GrpcServer::Start(options));
    TestJobOptions job{.consistency = {.mode = ConsistencyMode::kAsp}};
    job.buckets = 1;
    job.node = std::move(name);
    job.safe_replies = true;
    job.clock = &clock_;
    job.transport = &transport_;
    job.on_report = [this] { Look(); };
    job_ = MakeEmptyTestJob(job);
    jobs_.Add(job_);
  }
  ~Node() {
    transport_.Stop();
    jobs_.DropAll(absl::UnavailableError("the server stops"));
    server_.reset();
  }

  HeldJob& job() { return *job_; }
  const std::string& address() const { return server_->address(); }
  // Its replicas have all of its shards.
  void AwaitFilled() { REQUIRE(filled_.WaitForNotificationWithTimeout(absl::Seconds(60))); }
  // Sends these parts, with their checksums, and the end of the stream.
  absl::Status Install(std::vector<v1::InstallPart> parts) {
    for (v1::InstallPart& part : parts) Seal(&part);
    return InstallAsTheyAre(parts);
  }
  absl::Status InstallAsTheyAre(const std::vector<v1::InstallPart>& parts) {
    const auto stub =
        v1::ParameterServer::NewStub(MakeChannel(server_->address(), ChannelKind::kData));
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(60));
    v1::ReplicateResponse response;
    const auto stream = stub->Install(&context, &response);
    for (const v1::InstallPart& part : parts) stream->Write(part);
    stream->WritesDone();
    return FromGrpcStatus(stream->Finish());
  }

 private:
  void Look() {
    size_t filled = 0;
    for (const v1::ReplicaState& state : job_->ReplicaStates()) {
      filled += state.state() == v1::ReplicaState::FILLED;
    }
    if (filled == job_->shards().size() && !filled_.HasBeenNotified()) filled_.Notify();
  }

  SteadyClock clock_;
  HeldJobs jobs_;
  GrpcReplicaTransport transport_;
  ParameterService service_;
  std::unique_ptr<GrpcServer> server_;
  absl::Notification filled_;
  std::shared_ptr<HeldJob> job_;
};

void PushRows(HeldJob& job, uint64_t keys, uint64_t sequence) {
  std::vector<uint64_t> named;
  for (uint64_t key = 1; key <= keys; ++key) named.push_back(key);
  v1::PushResponse response;
  job.calls().Push(Detach(RowPushOf(0, 1, named, 1.0f, sequence)), &response,
                   [](const absl::Status&) {});
}

std::string BucketIn(const HeldJob& job) {
  for (const HeldCopy& copy : job.Copies()) {
    if (copy.shard == kBucket) return copy.snapshot.SerializeAsString();
  }
  return "";
}

v1::RoutingTable RoutingOf(const std::string& replica) {
  v1::RoutingTable routing = TestRouting(1);
  AddBuckets(&routing, 1);
  if (replica.empty()) return routing;
  routing.set_generation(2);
  AddReplica(&routing, "server-2", /*in_sync=*/false);
  routing.mutable_servers(1)->set_address(replica);
  return routing;
}

TEST_CASE("Install stream: a bucket of many pieces arrives as it is", "[server][replication]") {
  Node replica("server-2"), primary("server-1");
  TakeRouting(primary.job(), RoutingOf(""));
  constexpr uint64_t kRows = 60'000;
  PushRows(primary.job(), kRows, 1);
  REQUIRE(BucketIn(primary.job()).size() > 4 * CapturedRows::kPieceBytes);
  TakeRouting(replica.job(), RoutingOf(replica.address()));
  TakeRouting(primary.job(), RoutingOf(replica.address()));
  for (uint64_t i = 2; i < 20; ++i) PushRows(primary.job(), 10 * i, i);  // While it is on its way.
  primary.AwaitFilled();
  CHECK(BucketIn(replica.job()) == BucketIn(primary.job()));
}

v1::ReplicateRequest RequestOf(const v1::ShardSnapshot& snapshot) {
  v1::ReplicateRequest request;
  request.set_job_id("lenet-1");
  request.set_table(1);
  request.set_term(1);
  request.set_sender("server-1");
  request.set_routing_generation(2);
  *request.mutable_install() = snapshot;
  return request;
}

std::vector<v1::InstallPart> PartsOf(const v1::ReplicateRequest& request) {
  std::vector<v1::InstallPart> parts(2);
  const std::string bytes = request.SerializeAsString();
  parts[0].set_job_id("lenet-1");
  parts[0].set_request_bytes(static_cast<int64_t>(bytes.size()));
  parts[0].set_request(bytes.substr(0, 10));
  parts[1].set_request(bytes.substr(10));
  return parts;
}

TEST_CASE("Install stream: what cannot be taken, or is damaged, is refused at once (issue 20)",
          "[server][replication]") {
  Node replica("server-2");
  TakeRouting(replica.job(), RoutingOf(replica.address()));
  REQUIRE_OK_AND_ASSIGN(const TableShard made, replica.job().factory().Initial({kBucket, {0, 1}}));
  std::vector<v1::InstallPart> parts = PartsOf(RequestOf(made.Snapshot().value()));
  SECTION("it is more than was announced") {
    parts[0].set_request_bytes(parts[0].request_bytes() - 1);
    CHECK_STATUS(replica.Install(parts), absl::StatusCode::kInvalidArgument,
                 "bytes that its first part has announced");
    parts[0].set_request_bytes((int64_t{1} << 30) + 1);
    CHECK_STATUS(replica.Install(parts), absl::StatusCode::kInvalidArgument,
                 "an install's request of 1073741825 bytes beside its rows, expected at most");
  }
  SECTION("others take the memory for it") {
    REQUIRE_OK_AND_ASSIGN(
        const InstallMemory::Share others,
        replica.job().replica_calls().install_memory()->Take(InstallMemory::kBytesMax));
    CHECK_STATUS(replica.Install(parts), absl::StatusCode::kResourceExhausted,
                 "others hold 2147483648");
  }
  SECTION("others take the memory for what it is once it is parsed") {
    v1::ReplicateRequest request = RequestOf(made.Snapshot().value());
    for (int i = 0; i < 100'000; ++i) request.mutable_install()->mutable_state()->add_members();
    parts = PartsOf(request);
    parts[1].set_end(true);
    const std::shared_ptr<InstallMemory>& memory = replica.job().replica_calls().install_memory();
    constexpr int64_t kLeft = 50'000'000;  // An entry of two bytes is counted as 512.
    REQUIRE(2 * parts[0].request_bytes() < kLeft / 10);
    REQUIRE_OK_AND_ASSIGN(const InstallMemory::Share others,
                          memory->Take(InstallMemory::kBytesMax - kLeft));
    CHECK_STATUS(replica.Install(parts), absl::StatusCode::kResourceExhausted,
                 "an install asks for 512");
    CHECK(BucketIn(replica.job()).empty());
  }
  SECTION("a bit of it has changed") {
    parts[1].set_end(true);
    for (v1::InstallPart& part : parts) Seal(&part);
    std::string* damaged = parts[GENERATE(0, 1)].mutable_request();
    damaged->back() = static_cast<char>(damaged->back() ^ 4);
    CHECK_STATUS(replica.InstallAsTheyAre(parts), absl::StatusCode::kDataLoss,
                 "install: its bytes have the checksum");
    CHECK(BucketIn(replica.job()).empty());
  }
}

TEST_CASE("Install stream: what is not whole changes nothing", "[server][replication]") {
  Node replica("server-2");
  TakeRouting(replica.job(), RoutingOf(replica.address()));
  REQUIRE_OK_AND_ASSIGN(const TableShard made, replica.job().factory().Initial({kBucket, {0, 1}}));
  const v1::ReplicateRequest request = RequestOf(made.Snapshot().value());
  std::vector<v1::InstallPart> parts = PartsOf(request);
  SECTION("it breaks off") {
    CHECK_STATUS(replica.Install(parts), absl::StatusCode::kAborted, "before its end");
    parts[1].mutable_piece()->add_optimizer_state();  // State that belongs to no rows.
    CHECK_STATUS(replica.Install(parts), absl::StatusCode::kAborted, "before its end");
    CHECK(BucketIn(replica.job()).empty());
  }
  SECTION("it is no request") {
    parts[1].set_request("no message");
    parts[1].set_end(true);
    CHECK_STATUS(replica.Install(parts), absl::StatusCode::kInvalidArgument, "not the bytes of");
  }
  SECTION("a piece is no rows") {
    parts[1].mutable_piece()->set_values("abc");
    parts[1].set_end(true);
    CHECK_STATUS(replica.Install(parts), absl::StatusCode::kDataLoss, "3 bytes of keys and rows");
    CHECK(BucketIn(replica.job()).empty());
  }
  SECTION("it is of another job") {
    v1::ReplicateRequest other = request;
    other.set_job_id("lenet-2");
    parts[0].set_request(other.SerializeAsString());
    parts[0].set_end(true);
    CHECK_STATUS(replica.Install({parts[0]}), absl::StatusCode::kInvalidArgument,
                 "an install of job \"lenet-2\", its first part has announced \"lenet-1\"");
    // Nothing of it is waited for (issue 20).
    parts[0].set_job_id("lenet-2");
    parts[0].set_end(false);
    CHECK_STATUS(replica.Install({parts[0]}), absl::StatusCode::kNotFound, "lenet-2");
  }
  SECTION("it is of a term that has ended") {
    v1::RoutingTable later = TestRouting(3, "server-1", 3);
    AddBuckets(&later, 1);
    AddReplica(&later, "server-2", /*in_sync=*/false);
    TakeRouting(replica.job(), later);
    CHECK_STATUS(replica.Install(parts), absl::StatusCode::kAborted, "before its end");
    parts[1].mutable_piece()->add_optimizer_state();  // It is not waited for what follows.
    CHECK_STATUS(replica.Install(parts), absl::StatusCode::kFailedPrecondition, "has ended");
  }
  SECTION("with its end it is taken") {
    parts[1].set_end(true);
    REQUIRE_OK(replica.Install(parts));
    CHECK(BucketIn(replica.job()) == request.install().SerializeAsString());
  }
}

}  // namespace
}  // namespace capstan::server::install_stream_test
