// Records between real servers: over data connections, and over gRPC where there are none.
#include "server/replication/grpc_replica_transport.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "server/engine/job/held_jobs.h"
#include "server/engine/testing/job_fixture.h"
#include "server/rpc/deadline_timer.h"
#include "server/rpc/parameter_service.h"

namespace capstan::server::grpc_replica_transport_test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// A server with a job of its own that holds nothing yet.
class Node {
 public:
  explicit Node(const NodeId& node)
      : timer_(&clock_, [this](Instant now) { return jobs_.Tick(now); }), service_(&jobs_) {
    timer_.Start();
    GrpcServer::Options options;
    options.listen = "127.0.0.1:0";
    options.services = {&service_};
    REQUIRE_OK_AND_ASSIGN(server_, GrpcServer::Start(options));
    TestJobOptions job{.consistency = {.mode = ConsistencyMode::kAsp}, .node = node};
    job.safe_replies = true;
    job.clock = &clock_;
    job.transport = &transport_;
    job.schedule_tick = [this](Instant at) { timer_.Schedule(at); };
    job_ = MakeEmptyTestJob(job);
    jobs_.Add(job_);
  }
  ~Node() {
    transport_.Stop();
    jobs_.DropAll(absl::UnavailableError("the server stops"));
    server_.reset();
    timer_.Stop();
  }

  HeldJob& job() { return *job_; }
  ParameterService& service() { return service_; }
  const std::string& address() const { return server_->address(); }

  // One push of all shards, until it is acknowledged.
  void Push() {
    ++pushes_;
    v1::PushRequest push = PushOf(0, pushes_, -1, 1.0f, static_cast<uint64_t>(pushes_));
    v1::PushResponse response;
    absl::Status outcome;
    absl::Notification ended;
    job_->calls().Push(Detach(push), &response, [&](const absl::Status& status) {
      outcome = status;
      ended.Notify();
    });
    REQUIRE(ended.WaitForNotificationWithTimeout(kPatience));
    REQUIRE_OK(outcome);
  }
  int DataConnections() const {
    const auto stub =
        v1::ParameterServer::NewStub(MakeChannel(server_->address(), ChannelKind::kControl));
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    v1::DescribeTrafficResponse traffic;
    REQUIRE_OK(FromGrpcStatus(stub->DescribeTraffic(&context, {}, &traffic)));
    return static_cast<int>(traffic.data_connections());
  }
  std::vector<std::string> Bytes() const {
    std::vector<std::string> bytes;
    for (const HeldCopy& copy : job_->Copies()) bytes.push_back(copy.snapshot.SerializeAsString());
    return bytes;
  }

 private:
  SteadyClock clock_;
  HeldJobs jobs_;
  DeadlineTimer timer_;
  GrpcReplicaTransport transport_;
  ParameterService service_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<HeldJob> job_;
  int pushes_ = 0;
};

void Pair(Node& primary, Node& replica) {
  v1::RoutingTable routing = TestRouting(1);
  AddReplica(&routing, "server-2", /*in_sync=*/true);
  routing.mutable_servers(1)->set_address(replica.address());
  TakeRouting(primary.job(), routing);
  TakeRouting(replica.job(), routing);  // Later: the primary is told to try again.
}

TEST_CASE("Replica transport: records go over gRPC to a server without data connections",
          "[server][replication]") {
  Node replica("server-2"), primary("server-1");
  Pair(primary, replica);
  for (int i = 0; i < 20; ++i) primary.Push();
  CHECK(replica.DataConnections() == 0);
  CHECK(replica.Bytes() == primary.Bytes());
}

TEST_CASE("Replica transport: records go over a data connection, and on without it when it is lost",
          "[server][replication]") {
  Node replica("server-2"), primary("server-1");
  REQUIRE_OK(replica.service().ListenForData("127.0.0.1:0", "127.0.0.1"));
  Pair(primary, replica);
  do {
    primary.Push();  // It is asked for with the first message.
  } while (replica.DataConnections() == 0);
  for (int i = 0; i < 20; ++i) primary.Push();
  CHECK(replica.DataConnections() == 1);
  CHECK(replica.Bytes() == primary.Bytes());
  replica.service().CloseDataConnections();
  for (int i = 0; i < 20; ++i) primary.Push();
  CHECK(replica.Bytes() == primary.Bytes());
}

}  // namespace
}  // namespace capstan::server::grpc_replica_transport_test
