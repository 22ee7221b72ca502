#include "scheduler/cli/job/table_export.h"

#include <google/protobuf/text_format.h>
#include <signal.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::cli::table_export_test {
namespace {

using testing::ReadFile;
using testing::TestPath;

v1::GetTablesResponse Tables() {
  v1::GetTablesResponse tables;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(R"(
    tables { table: 0 name: "parameters" elements: 5 rule: OPTIMIZER
             tensors { name: "w" shape: [5] initializer { constant: 0 } } }
    routing {
      job_id: "a-1" generation: 3
      shards { table: 0 shard: 0 element_begin: 0 element_end: 2 server: 0 }
      shards { table: 0 shard: 1 element_begin: 2 element_end: 4 server: 1 }
      shards { table: 0 shard: 2 element_begin: 4 element_end: 5 server: 0 }
      servers { node_id: "server-1" } servers { node_id: "server-2" }
    })",
                                                        &tables));
  return tables;
}

// Fake servers: element e has the value e + 0.5, and shard s has version 10 - s.
class FakeServers {
 public:
  explicit FakeServers(const v1::GetTablesResponse& tables) : tables_(tables) {}

  absl::StatusOr<v1::PullResponse> Pull(int server, const v1::PullRequest& request) {
    CHECK(request.snapshot());
    CHECK(request.caller().rank() == -1);
    CHECK(request.caller().job_id() == "a-1");
    CHECK(request.caller().routing_generation() == 3);
    v1::PullResponse response;
    for (const v1::ShardPull& pull : request.shards()) {
      const v1::ShardRoute& route = tables_.routing().shards(pull.shard());
      CHECK(route.server() == server);
      CHECK(pull.held_version() == -1);
      v1::ShardValues* values = response.add_shards();
      values->set_outcome(v1::ShardValues::VALUES);
      values->set_value_type(v1::FLOAT32);
      values->set_version(10 - pull.shard());
      for (int64_t e = route.element_begin(); e < route.element_end(); ++e) {
        const float value = static_cast<float>(e) + 0.5f;
        values->mutable_values()->append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
    }
    ++messages;
    return response;
  }

  int messages = 0;

 private:
  const v1::GetTablesResponse tables_;
};

TEST_CASE("PullTables: shards of all servers make whole tables", "[cli]") {
  FakeServers servers(Tables());
  REQUIRE_OK_AND_ASSIGN(const auto tables,
                        PullTables("a-1", Tables(), [&](int server, const auto& request) {
                          return servers.Pull(server, request);
                        }));
  REQUIRE(tables.size() == 1);
  CHECK(tables[0].values == std::vector<float>{0.5f, 1.5f, 2.5f, 3.5f, 4.5f});
  CHECK(tables[0].version == 8);
  CHECK(servers.messages == 2);  // One message for each server.
}

TEST_CASE("PullTables: a routing table that does not cover its tables is refused", "[cli]") {
  const auto never = [](int, const v1::PullRequest&) -> absl::StatusOr<v1::PullResponse> {
    FAIL("nothing may be asked for");
    return v1::PullResponse();
  };
  v1::GetTablesResponse gap = Tables();
  gap.mutable_routing()->mutable_shards(1)->set_element_begin(3);
  CHECK_STATUS(PullTables("a-1", gap, never), absl::StatusCode::kDataLoss, "a range from 2");
  v1::GetTablesResponse end = Tables();
  end.mutable_routing()->mutable_shards()->RemoveLast();
  CHECK_STATUS(PullTables("a-1", end, never), absl::StatusCode::kDataLoss,
               "covers 4 of 5 elements");
  v1::GetTablesResponse beyond = Tables();
  beyond.mutable_routing()->mutable_shards(2)->set_element_end(6);
  CHECK_STATUS(PullTables("a-1", beyond, never), absl::StatusCode::kDataLoss, "[4, 6)");
  v1::GetTablesResponse server = Tables();
  server.mutable_routing()->mutable_shards(0)->set_server(2);
  CHECK_STATUS(PullTables("a-1", server, never), absl::StatusCode::kDataLoss, "on server 2");
  CHECK_STATUS(PullTables("a-1", {}, never), absl::StatusCode::kFailedPrecondition, "no tables");
}

TEST_CASE("PullTables: sparse tables and their buckets are left to others", "[cli]") {
  v1::GetTablesResponse tables = Tables();
  v1::TableSpec& rows = *tables.add_tables();
  rows.set_table(1);
  rows.set_elements(2);
  rows.mutable_sparse()->set_dim(8);
  rows.mutable_sparse()->set_buckets(2);
  for (int bucket = 0; bucket < 2; ++bucket) {
    v1::ShardRoute& route = *tables.mutable_routing()->add_shards();
    route.set_table(1);
    route.set_shard(bucket);
    route.set_element_begin(bucket);
    route.set_element_end(bucket + 1);
  }
  FakeServers servers(Tables());
  REQUIRE_OK_AND_ASSIGN(const auto pulled,
                        PullTables("a-1", tables, [&](int server, const auto& request) {
                          return servers.Pull(server, request);
                        }));
  REQUIRE(pulled.size() == 1);
  CHECK(pulled[0].values.size() == 5);
}

TEST_CASE("PullTables: values of another length are refused", "[cli]") {
  FakeServers servers(Tables());
  const auto pull = [&](int server, const v1::PullRequest& request) {
    auto response = servers.Pull(server, request);
    response->mutable_shards(0)->mutable_values()->pop_back();
    return response;
  };
  CHECK_STATUS(PullTables("a-1", Tables(), pull), absl::StatusCode::kDataLoss,
               "shard 0 of table 0: got VALUES with 7 bytes, expected VALUES with 8 bytes");
}

TEST_CASE("CopyModelFiles: copies what the manifest names, or says what is missing", "[cli]") {
  const std::string from = absl::StrCat(std::getenv("TEST_TMPDIR"), "/from");
  const std::string to = absl::StrCat(std::getenv("TEST_TMPDIR"), "/to/deep");
  std::filesystem::create_directories(from);
  CHECK_STATUS(CopyModelFiles(from, to), absl::StatusCode::kNotFound,
               "from/model.json: no such file; the job exported no model there");
  std::ofstream(from + "/model.json")
      << R"({"tables": [{"name": "a"}, {"name": "f", "rows": {"file": "rows-f.safetensors"}}]})";
  std::ofstream(from + "/model.safetensors") << "tensors";
  CHECK_STATUS(CopyModelFiles(from, to), absl::StatusCode::kNotFound,
               "from/rows-f.safetensors: no such file");
  CHECK_FALSE(std::filesystem::exists(to + "/model.json"));
  std::ofstream(from + "/rows-f.safetensors") << "keys, rows";
  REQUIRE_OK_AND_ASSIGN(const auto files, CopyModelFiles(from, to));
  CHECK(files == std::vector<std::string>{"model.safetensors", "rows-f.safetensors", "model.json"});
  CHECK(std::filesystem::file_size(to + "/model.safetensors") == 7);
  CHECK(std::filesystem::file_size(to + "/rows-f.safetensors") == 10);
  CHECK(std::filesystem::exists(to + "/model.json"));
  REQUIRE_OK(CopyModelFiles(from, from).status());
}

TEST_CASE("CopyModelFiles: writes through no link, and a failure leaves the earlier files",
          "[cli]") {
  const std::string from = TestPath("source");
  const std::string to = TestPath("target");
  std::filesystem::create_directories(from);
  std::filesystem::create_directories(to);
  std::ofstream(from + "/model.json") << R"({"tables": [{"name": "a"}]})";
  std::ofstream(from + "/model.safetensors") << "tensors";
  std::ofstream(TestPath("other")) << "other";
  std::filesystem::create_symlink(TestPath("other"), to + "/model.safetensors");
  REQUIRE_OK(CopyModelFiles(from, to).status());
  CHECK(ReadFile(TestPath("other")) == "other");
  CHECK(ReadFile(to + "/model.safetensors") == "tensors");

  std::ofstream(from + "/model.safetensors") << std::string(10'000, 'x');
  struct rlimit limit {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const struct rlimit small = {.rlim_cur = 5000, .rlim_max = limit.rlim_max};
  const auto before = signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const absl::Status status = CopyModelFiles(from, to).status();
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  signal(SIGXFSZ, before);
  CHECK_STATUS(status, absl::StatusCode::kOutOfRange, to + "/model.safetensors");
  CHECK(ReadFile(to + "/model.safetensors") == "tensors");
}

}  // namespace
}  // namespace capstan::cli::table_export_test
