#include "common/snapshot/grpc_snapshot_source.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/grpc_types/capability_metadata.h"
#include "common/security/capability.h"
#include "common/testing/status_matchers.h"

namespace capstan::grpc_snapshot_source_test {
namespace {

// Gives a capability that ends in an hour with a snapshot, and "newer" with the tables.
class FakeScheduler final : public v1::Scheduler::Service {
 public:
  grpc::Status OpenSnapshot(grpc::ServerContext* context, const v1::OpenSnapshotRequest*,
                            v1::OpenSnapshotResponse* response) override {
    opened_with = CapabilityOf(*context);
    response->set_capability(snapshots_capability);
    return grpc::Status::OK;
  }
  grpc::Status GetTables(grpc::ServerContext*, const v1::GetTablesRequest* request,
                         v1::GetTablesResponse* response) override {
    asked_for = request->job_id();
    if (!answers) gone.WaitForNotification();
    response->set_capability("newer");
    return grpc::Status::OK;
  }

  const std::string snapshots_capability = MintCapability(
      CapabilityKey::FromBytes(std::string(CapabilityKey::kBytes, 'k')).value(),
      {.job = "ctr-1", .rank = {}, .incarnation = {}, .expiry = absl::Now() + absl::Hours(1)});
  std::string opened_with;
  std::string asked_for;
  bool answers = true;  // Else it answers GetTables once `gone` has been notified.
  absl::Notification gone;
};

class FakeServer final : public v1::ParameterServer::Service {
 public:
  grpc::Status ReadSnapshot(grpc::ServerContext* context, const v1::ReadSnapshotRequest*,
                            v1::ReadSnapshotResponse*) override {
    read_with = CapabilityOf(*context);
    return grpc::Status::OK;
  }
  std::string read_with;
};

struct Cluster {
  Cluster() {
    auto started = GrpcServer::Start({.services = {&scheduler, &server}});
    REQUIRE_OK(started);
    grpc = *std::move(started);
    address.set_address(grpc->address());
  }
  ~Cluster() { scheduler.gone.Notify(); }
  void OpenAndRead(GrpcSnapshotSource& source) {
    v1::OpenSnapshotRequest request;
    request.set_job_id("ctr-1");
    REQUIRE_OK(source.Open(request).status());
    REQUIRE_OK(source.Read(address, {}).status());
  }

  FakeScheduler scheduler;
  FakeServer server;
  v1::ServerAddress address;
  std::unique_ptr<GrpcServer> grpc;  // Declared last: it ends before its services.
};

TEST_CASE("Snapshot source: a reader's capability is asked for again before it ends",
          "[snapshot]") {
  Cluster cluster;
  GrpcSnapshotSource source({.scheduler = cluster.grpc->address()});
  cluster.OpenAndRead(source);
  CHECK(cluster.scheduler.opened_with.empty());
  CHECK(cluster.scheduler.asked_for == "ctr-1");
  CHECK(cluster.server.read_with == "newer");
}

TEST_CASE("Snapshot source: a scheduler that does not answer takes no time from a read",
          "[snapshot]") {
  Cluster cluster;
  cluster.scheduler.answers = false;
  GrpcSnapshotSource source(
      {.scheduler = cluster.grpc->address(), .call_timeout = absl::Seconds(2)});
  cluster.OpenAndRead(source);
  CHECK(cluster.scheduler.asked_for == "ctr-1");
  CHECK(cluster.server.read_with == cluster.scheduler.snapshots_capability);
}

TEST_CASE("Snapshot source: a task shows its own newest capability", "[snapshot]") {
  Cluster cluster;
  std::string of_task = "first";
  GrpcSnapshotSource source(
      {.scheduler = cluster.grpc->address(), .capability = [&] { return of_task; }});
  cluster.OpenAndRead(source);
  CHECK(cluster.scheduler.opened_with == "first");
  CHECK(cluster.server.read_with == "first");
  of_task = "second";
  REQUIRE_OK(source.Read(cluster.address, {}).status());
  CHECK(cluster.server.read_with == "second");
  CHECK(cluster.scheduler.asked_for.empty());
}

}  // namespace
}  // namespace capstan::grpc_snapshot_source_test
