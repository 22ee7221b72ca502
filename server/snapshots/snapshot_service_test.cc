// Snapshots of real servers over the network, by the public client.
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/net/grpc/grpc_server.h"
#include "common/snapshot/grpc_snapshot_source.h"
#include "common/snapshot/snapshot_reader.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "server/engine/job/held_jobs.h"
#include "server/engine/testing/job_fixture.h"
#include "server/rpc/parameter_service.h"

namespace capstan::server::snapshot_service_test {
namespace {

constexpr int32_t kBuckets = 4;
constexpr uint64_t kKeys = 500;

// A server that holds a job of its own, and the scheduler's part in opening snapshots of it.
class Server final : public SnapshotSource {
 public:
  Server() : service_(&jobs_), servers_({.scheduler = ""}) {
    grpc_ = GrpcServer::Start({.services = {&service_}}).value();
    job_ = MakeTestJob({.consistency = {.mode = ConsistencyMode::kAsp}, .buckets = kBuckets});
    jobs_.Add(job_);
  }
  ~Server() override { Stop(); }
  void Stop() {
    jobs_.DropAll(absl::NotFoundError("the job has ended"));
    grpc_.reset();
  }
  void DropJob() { jobs_.Drop("lenet-1"); }
  void Push(uint64_t first, uint64_t last) {
    std::vector<uint64_t> keys;
    for (uint64_t key = first; key < last; ++key) keys.push_back(key);
    v1::PushResponse response;
    job_->calls().Push(Detach(RowPushOf(0, kBuckets, keys, -1.0f, ++sequence_)), &response,
                       [](const absl::Status& status) { REQUIRE_OK(status); });
  }

  absl::StatusOr<v1::OpenSnapshotResponse> Open(const v1::OpenSnapshotRequest& request) override {
    v1::CheckpointOrder order;
    order.set_checkpoint_id(++snapshots_);
    order.add_readers(request.reader());
    REQUIRE_OK(job_->snapshot_calls().Keep(order));
    v1::OpenSnapshotResponse response;
    response.set_snapshot_id(snapshots_);
    *response.add_tables() = TestTable();
    *response.add_tables() = TestSparseTable(kBuckets);
    *response.mutable_routing() = job_->assignment().routing();
    response.mutable_routing()->mutable_servers(0)->set_address(grpc_->address());
    return response;
  }
  absl::StatusOr<v1::ReadSnapshotResponse> Read(const v1::ServerAddress& server,
                                                const v1::ReadSnapshotRequest& request) override {
    return servers_.Read(server, request);
  }
  absl::Status Close(const v1::ServerAddress& server,
                     const v1::CloseSnapshotRequest& request) override {
    return servers_.Close(server, request);
  }
  absl::Status Pause(absl::Duration time) override {
    clock.Advance(time);
    return absl::OkStatus();
  }
  std::vector<CheckpointId> OpenNow() const { return job_->snapshot_calls().open(); }

  ManualClock clock;  // The readers'.

 private:
  HeldJobs jobs_;
  std::shared_ptr<HeldJob> job_;
  ParameterService service_;
  std::unique_ptr<GrpcServer> grpc_;
  GrpcSnapshotSource servers_;
  uint64_t sequence_ = 0;
  uint64_t snapshots_ = 0;
};

std::unique_ptr<SnapshotReader> OpenReader(Server& server) {
  auto reader = SnapshotReader::Open({.job_id = "lenet-1"}, server.clock, server);
  REQUIRE_OK(reader.status());
  return *std::move(reader);
}

TEST_CASE("Snapshot service: readers read their moments while pushes go on, and close them",
          "[server]") {
  Server server;
  server.Push(0, kKeys);
  auto first = OpenReader(server);
  server.Push(0, 2 * kKeys);
  auto second = OpenReader(server);
  server.Push(0, 3 * kKeys);
  REQUIRE_OK_AND_ASSIGN(const ReadRows one, first->Rows("rows", {7, kKeys + 7}));
  CHECK(one.row(0)[0] == 1.0f);
  CHECK_FALSE(one.has(1));
  REQUIRE_OK_AND_ASSIGN(const ReadRows two, second->Rows("rows", {7, kKeys + 7}));
  CHECK(two.row(0)[1] == 2.0f);
  CHECK(two.row(1)[0] == 1.0f);
  size_t all = 0;
  REQUIRE_OK(
      first->AllRows("rows", [&](absl::Span<const uint64_t> keys, absl::Span<const float> values) {
        all += keys.size();
        for (const float value : values) CHECK(value == 1.0f);
        return absl::OkStatus();
      }));
  CHECK(all == kKeys);
  REQUIRE_OK_AND_ASSIGN(const std::vector<float> values, first->Values("parameters"));
  CHECK(values == std::vector<float>(24, 0.0f));
  first.reset();
  CHECK(server.OpenNow() == std::vector<CheckpointId>{CheckpointId(2)});
  second.reset();
  CHECK(server.OpenNow().empty());
}

TEST_CASE("Snapshot service: a server that dies, or a job that ends, is told by name", "[server]") {
  Server server;
  server.Push(0, kKeys);
  const auto reader = OpenReader(server);
  SECTION("the server is killed") {
    server.Stop();
    CHECK_STATUS(reader->Rows("rows", {7}), absl::StatusCode::kUnavailable,
                 "snapshot 1 of lenet-1, server-1 at ");
  }
  SECTION("the job has ended") {
    server.DropJob();
    CHECK_STATUS(reader->Rows("rows", {7}), absl::StatusCode::kAborted,
                 "snapshot 1 of lenet-1, server-1 at ");
  }
}

}  // namespace
}  // namespace capstan::server::snapshot_service_test
