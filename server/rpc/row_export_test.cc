// The rows of a sparse table from real servers, over the network, to a file.
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/net/grpc/grpc_server.h"
#include "common/row_export/export_rows.h"
#include "common/row_export/grpc_row_source.h"
#include "common/tensor/safetensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"
#include "common/time/clock.h"
#include "server/engine/job/held_jobs.h"
#include "server/engine/testing/job_fixture.h"
#include "server/rpc/parameter_service.h"

namespace capstan::server::row_export_test {
namespace {

constexpr int32_t kBuckets = 4;
constexpr uint64_t kKeys = 500;
constexpr ConsistencyRule kAsp{.mode = ConsistencyMode::kAsp};

// The first weight of a key's row.
float WeightOf(uint64_t key) { return -static_cast<float>(key % 3 + 1); }

// One that is told to hold everything.
class Server {
 public:
  explicit Server(const NodeId& node) : node_(node), service_(&jobs_) {
    grpc_ = GrpcServer::Start({.services = {&service_}}).value();
  }
  ~Server() { Stop(); }
  void Stop() {
    jobs_.DropAll(absl::UnavailableError("the server stops"));
    grpc_.reset();
  }
  v1::RoutingTable Routing(uint64_t generation) const {
    v1::RoutingTable routing = TestRouting(generation, node_, 1);
    AddBuckets(&routing, kBuckets);
    routing.mutable_servers(0)->set_address(address_);
    return routing;
  }
  // Holds the job with kKeys rows, made by three pushes, at this routing generation.
  void Hold(uint64_t generation) {
    address_ = grpc_->address();
    job_ = MakeEmptyTestJob({.consistency = kAsp, .buckets = kBuckets, .node = node_});
    TakeRouting(*job_, Routing(generation));
    for (uint64_t push = 1; push <= 3; ++push) {
      std::vector<uint64_t> keys;
      for (uint64_t key = 0; key < kKeys; ++key) {
        if (key % 3 + 1 >= push) keys.push_back(key);
      }
      v1::PushRequest request = RowPushOf(0, kBuckets, keys, 1.0f, push);
      request.mutable_caller()->set_routing_generation(generation);
      v1::PushResponse response;
      job_->calls().Push(Detach(request), &response,
                         [](const absl::Status& status) { REQUIRE_OK(status); });
    }
    jobs_.Add(job_);
  }

 private:
  const NodeId node_;
  std::string address_;
  HeldJobs jobs_;
  std::shared_ptr<HeldJob> job_;
  ParameterService service_;
  std::unique_ptr<GrpcServer> grpc_;
};

TableScan::Options Reader(int32_t bytes_max) {
  TableScan::Options options{.bytes_max = bytes_max, .patience = absl::Seconds(20)};
  options.caller = CallerOf(-1, 0);
  return options;
}

TEST_CASE("Row export: what servers hold is what the file says", "[server]") {
  Server server("server-1");
  server.Hold(1);
  const SteadyClock clock;
  GrpcRowSource source({.newest_routing = [&] { return server.Routing(1); }});
  const v1::TableSpec table = TestSparseTable(kBuckets);
  const std::string folder = testing::TestPath("model");
  REQUIRE_OK_AND_ASSIGN(const TableRows rows,
                        ExportRows(Reader(1000), table, server.Routing(1), folder, clock, source));
  CHECK(rows.count == static_cast<int64_t>(kKeys));
  CHECK(rows.version == 3);
  REQUIRE_OK_AND_ASSIGN(const auto tensors, ReadSafetensors(folder + "/rows-rows.safetensors"));
  std::map<uint64_t, float> read;
  for (size_t i = 0; i < tensors[0].keys.size(); ++i) {
    read[tensors[0].keys[i]] = tensors[1].values[i * kTestDim + 1];
  }
  REQUIRE(read.size() == kKeys);
  for (const auto& [key, weight] : read) CHECK(weight == WeightOf(key));
}

TEST_CASE("Row export: a server that dies on the way is replaced, and no row comes twice",
          "[server]") {
  Server first("server-1"), second("server-2");
  first.Hold(1);
  second.Hold(2);
  const SteadyClock clock;
  GrpcRowSource source({.newest_routing = [&] { return second.Routing(2); }});
  std::map<uint64_t, int> times;
  const auto sink = [&](const RowBatch& rows) {
    for (size_t i = 0; i < rows.keys.size(); ++i) {
      ++times[rows.keys[i]];
      CHECK(rows.values[i * kTestDim] == WeightOf(rows.keys[i]));
    }
    if (times.size() > kKeys / 3) first.Stop();
    return absl::OkStatus();
  };
  const v1::TableSpec table = TestSparseTable(kBuckets);
  REQUIRE_OK_AND_ASSIGN(const ScannedTable scanned,
                        ScanTable(Reader(100), table, first.Routing(1), clock, source, sink));
  CHECK(scanned.rows == static_cast<int64_t>(kKeys));
  CHECK(times.size() == kKeys);
}

}  // namespace
}  // namespace capstan::server::row_export_test
