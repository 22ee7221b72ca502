#include "common/snapshot/snapshot_reader.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/sparse/key_hash.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"

namespace capstan::snapshot_reader_test {
namespace {

constexpr int32_t kBuckets = 3;
constexpr int32_t kDim = 2;
constexpr int64_t kElements = 10;  // Elements of the dense table: shards of 6 and 4.

using absl::StatusCode;

// Two servers with table 0, dense, and table 1, sparse: row k is [k, k + 0.5].
class FakeSource final : public SnapshotSource {
 public:
  FakeSource() {
    opened.set_snapshot_id(7);
    opened.set_iteration(40);
    v1::TableSpec* dense = opened.add_tables();
    dense->set_name("parameters");
    dense->set_elements(kElements);
    dense->set_rule(v1::OPTIMIZER);
    v1::TensorSpec* tensor = dense->add_tensors();
    tensor->set_name("w");
    tensor->add_shape(kElements);
    tensor->mutable_initializer()->set_constant(0);
    v1::TableSpec* sparse = opened.add_tables();
    sparse->set_table(1);
    sparse->set_name("features");
    sparse->set_elements(kBuckets);
    sparse->set_rule(v1::OPTIMIZER);
    sparse->mutable_sparse()->set_dim(kDim);
    sparse->mutable_sparse()->set_buckets(kBuckets);
    sparse->mutable_sparse()->mutable_initializer()->set_constant(0);
    v1::RoutingTable& routing = *opened.mutable_routing();
    routing.set_generation(3);
    for (const char* name : {"a", "b", "idle"}) {
      v1::ServerAddress* server = routing.add_servers();
      server->set_node_id(name);
      server->set_address(std::string("at-") + name);
    }
    AddShard(0, 0, 0, 6, 0);
    AddShard(0, 1, 6, 10, 1);
    for (int32_t bucket = 0; bucket < kBuckets; ++bucket) {
      AddShard(1, bucket, bucket, bucket + 1, bucket % 2);
    }
  }
  void AddShard(int32_t table, int32_t shard, int64_t begin, int64_t end, int32_t server) {
    v1::ShardRoute* route = opened.mutable_routing()->add_shards();
    route->set_table(table);
    route->set_shard(shard);
    route->set_element_begin(begin);
    route->set_element_end(end);
    route->set_server(server);
  }
  void Put(uint64_t key) {
    const KeyPlace at = PlaceOf(KeyHash(key), kBuckets);
    rows[static_cast<size_t>(at.bucket)][at.place] = key;
  }

  absl::StatusOr<v1::OpenSnapshotResponse> Open(const v1::OpenSnapshotRequest& request) override {
    asked = request;
    if (away > 0 && away-- > 0) return absl::UnavailableError("away");
    return opened;
  }
  absl::StatusOr<v1::ReadSnapshotResponse> Read(const v1::ServerAddress& server,
                                                const v1::ReadSnapshotRequest& request) override {
    ++reads[server.node_id()];
    if (away > 0 && away-- > 0) return absl::UnavailableError("away");
    if (failed.contains(server.node_id())) return failed.at(server.node_id());
    CHECK(request.snapshot_id() == 7);
    CHECK(request.reader() == asked.reader());
    v1::ReadSnapshotResponse response;
    response.set_lease_ms(30'000);
    if (request.has_values()) Fill(request.values(), &response);
    if (request.has_rows()) Fill(request.rows(), &response);
    if (request.has_bucket()) Fill(request.bucket(), &response);
    spoil(&response);
    return response;
  }
  absl::Status Close(const v1::ServerAddress& server,
                     const v1::CloseSnapshotRequest& request) override {
    CHECK(request.snapshot_id() == 7);
    closed.push_back(server.node_id());
    return absl::OkStatus();
  }
  absl::Status Pause(absl::Duration time) override {
    clock.Advance(time);
    return absl::OkStatus();
  }

  ManualClock clock;
  v1::OpenSnapshotResponse opened;
  v1::OpenSnapshotRequest asked;
  std::map<uint64_t, uint64_t> rows[kBuckets];  // Place -> key.
  std::map<std::string, int> reads;
  std::map<std::string, absl::Status> failed;
  std::vector<std::string> closed;
  int away = 0;       // Calls that are not answered.
  int64_t piece = 2;  // Rows of a bucket in one answer.
  std::function<void(v1::ReadSnapshotResponse*)> spoil = [](v1::ReadSnapshotResponse*) {};

 private:
  static void AppendRow(uint64_t key, std::string* to) {
    const float row[kDim] = {static_cast<float>(key), static_cast<float>(key) + 0.5f};
    to->append(reinterpret_cast<const char*>(row), sizeof(row));
  }
  static void Fill(const v1::SnapshotShard& wanted, v1::ReadSnapshotResponse* response) {
    const size_t count = wanted.shard() == 0 ? 6 : 4;
    const std::vector<float> values(count, static_cast<float>(wanted.shard()));
    response->set_values(values.data(), values.size() * sizeof(float));
  }
  void Fill(const v1::SnapshotRows& wanted, v1::ReadSnapshotResponse* response) {
    std::vector<uint64_t> keys(wanted.keys().size() / sizeof(uint64_t));
    std::memcpy(keys.data(), wanted.keys().data(), wanted.keys().size());
    std::string found((keys.size() + 7) / 8, '\0');
    for (size_t i = 0; i < keys.size(); ++i) {
      const KeyPlace at = PlaceOf(KeyHash(keys[i]), kBuckets);
      CHECK(at.bucket == wanted.shard());
      if (!rows[at.bucket].contains(at.place)) continue;
      found[i / 8] = static_cast<char>(found[i / 8] | 1 << i % 8);
      AppendRow(keys[i], response->mutable_values());
    }
    response->set_found(found);
  }
  void Fill(const v1::SnapshotBucket& wanted, v1::ReadSnapshotResponse* response) {
    std::string values;
    const auto& bucket = rows[wanted.shard()];
    auto row = bucket.lower_bound(wanted.place());
    for (int64_t i = 0; i < piece && row != bucket.end(); ++i, ++row) {
      response->mutable_values()->append(reinterpret_cast<const char*>(&row->second),
                                         sizeof(uint64_t));
      AppendRow(row->second, &values);
    }
    *response->mutable_values() += values;
    response->set_end(row == bucket.end());
    if (row != bucket.end()) response->set_next_place(row->first);
  }
};

std::unique_ptr<SnapshotReader> OpenReader(FakeSource& source) {
  auto reader = SnapshotReader::Open({.job_id = "ctr-1"}, source.clock, source);
  REQUIRE_OK(reader.status());
  return *std::move(reader);
}

TEST_CASE("SnapshotReader: rows by key, in any order, with a word on those that are not there",
          "[common]") {
  FakeSource source;
  for (const uint64_t key : {5, 17, 99}) source.Put(key);
  const auto reader = OpenReader(source);
  CHECK(reader->id() == 7);
  CHECK(reader->iteration() == 40);
  CHECK(reader->lease() == absl::Seconds(30));
  CHECK(reader->tables() == std::vector<std::string>{"features", "parameters"});
  REQUIRE_OK_AND_ASSIGN(const ReadRows rows, reader->Rows("features", {99, 4, 5, 99, 17, 1000}));
  const std::vector<bool> has = {true, false, true, true, true, false};
  for (size_t i = 0; i < has.size(); ++i) CHECK(rows.has(i) == has[i]);
  CHECK(rows.values.size() == 3 * kDim);  // Nothing is invented.
  CHECK(rows.row(0)[0] == 99.0f);
  CHECK(rows.row(3)[1] == 99.5f);
  CHECK(rows.row(2)[0] == 5.0f);
  CHECK(rows.row(4)[1] == 17.5f);
}

TEST_CASE("SnapshotReader: all rows in pieces, and all values", "[common]") {
  FakeSource source;
  for (uint64_t key = 0; key < 50; ++key) source.Put(key);
  const auto reader = OpenReader(source);
  std::map<uint64_t, float> read;
  REQUIRE_OK(reader->AllRows("features",
                             [&](absl::Span<const uint64_t> keys, absl::Span<const float> values) {
                               for (size_t i = 0; i < keys.size(); ++i)
                                 read[keys[i]] = values[i * kDim + 1];
                               return absl::OkStatus();
                             }));
  REQUIRE(read.size() == 50);
  for (const auto& [key, value] : read) CHECK(value == static_cast<float>(key) + 0.5f);
  CHECK_STATUS(
      reader->AllRows("features", [](auto, auto) { return absl::CancelledError("enough"); }),
      StatusCode::kCancelled, "enough");
  REQUIRE_OK_AND_ASSIGN(const std::vector<float> values, reader->Values("parameters"));
  CHECK(values == std::vector<float>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1});
}

TEST_CASE("SnapshotReader: reading from one server renews the lease at the others", "[common]") {
  FakeSource source;
  uint64_t of_a = 0;  // A key of bucket 0.
  while (PlaceOf(KeyHash(of_a), kBuckets).bucket != 0) ++of_a;
  const auto reader = OpenReader(source);
  source.reads.clear();
  REQUIRE_OK(reader->Rows("features", {of_a}).status());
  CHECK(source.reads == std::map<std::string, int>{{"a", 1}});
  source.clock.Advance(absl::Seconds(9));
  REQUIRE_OK(reader->Rows("features", {of_a}).status());
  CHECK(source.reads == std::map<std::string, int>{{"a", 2}});
  source.clock.Advance(absl::Seconds(2));  // A third of 30 s since the other was asked.
  REQUIRE_OK(reader->Rows("features", {of_a}).status());
  CHECK(source.reads == std::map<std::string, int>{{"a", 3}, {"b", 1}});
  REQUIRE_OK(reader->Renew());
  CHECK(source.reads == std::map<std::string, int>{{"a", 4}, {"b", 2}});
}

TEST_CASE("SnapshotReader: leases are renewed in the midst of one long call", "[common]") {
  FakeSource source;
  std::vector<uint64_t> keys;  // Keys of buckets 0 and 2, which are both on a.
  for (uint64_t key = 0; keys.size() < 20; ++key) {
    if (PlaceOf(KeyHash(key), kBuckets).bucket != 1) keys.push_back(key);
  }
  const auto reader = OpenReader(source);
  source.reads.clear();
  source.spoil = [&](v1::ReadSnapshotResponse* response) {  // Its rows take a while.
    if (!response->found().empty()) source.clock.Advance(absl::Seconds(11));
  };
  REQUIRE_OK(reader->Rows("features", keys).status());
  CHECK(source.reads["b"] == 1);
}

TEST_CASE("SnapshotReader: it is closed at every server that has some of it", "[common]") {
  FakeSource source;
  OpenReader(source).reset();
  CHECK(source.closed == std::vector<std::string>{"a", "b"});
}

TEST_CASE("SnapshotReader: what ends a snapshot is told with server and reason", "[common]") {
  FakeSource source;
  const auto reader = OpenReader(source);
  SECTION("the server says so") {
    source.failed["b"] = absl::AbortedError("a shard has left");
    CHECK_STATUS(reader->Renew(), StatusCode::kAborted,
                 "snapshot 7 of ctr-1, b at at-b: a shard has left");
  }
  SECTION("it does not answer") {
    source.failed["b"] = absl::UnavailableError("connection refused");
    CHECK_STATUS(reader->Values("parameters"), StatusCode::kUnavailable,
                 "snapshot 7 of ctr-1, b at at-b: no answer for 5.");
  }
  SECTION("it does not answer for a moment") {
    source.away = 3;
    REQUIRE_OK(reader->Values("parameters").status());
  }
}

TEST_CASE("SnapshotReader: a snapshot that is not there", "[common]") {
  FakeSource source;
  const auto why = [&] {
    return SnapshotReader::Open({.job_id = "ctr-1"}, source.clock, source).status();
  };
  SECTION("not in time") {
    source.opened.set_snapshot_id(0);
    CHECK_STATUS(why(), StatusCode::kDeadlineExceeded, "no snapshot of ctr-1 within 30 s");
  }
  SECTION("the scheduler is away") {
    source.away = 1000;
    CHECK_STATUS(why(), StatusCode::kUnavailable, "opening a snapshot: no answer for 5");
  }
  SECTION("a bucket has no server") {
    source.opened.mutable_routing()->mutable_shards()->RemoveLast();
    CHECK_STATUS(why(), StatusCode::kDataLoss, "table features: shards cover 2 of 3");
  }
  SECTION("a shard of nobody") {
    source.AddShard(1, 3, 3, 4, 9);
    CHECK_STATUS(why(), StatusCode::kDataLoss, "shard 3 of table 1 on server 9");
  }
  CHECK(source.closed.empty());
}

TEST_CASE("SnapshotReader: questions that cannot be, answers that cannot be", "[common]") {
  FakeSource source;
  source.Put(1);
  source.Put(2);
  source.Put(3);
  const auto reader = OpenReader(source);
  CHECK_STATUS(reader->Rows("colours", {1}), StatusCode::kInvalidArgument,
               "has no table \"colours\": expected one of features, parameters");
  CHECK_STATUS(reader->Rows("parameters", {1}), StatusCode::kInvalidArgument, "is dense");
  CHECK_STATUS(reader->Values("features"), StatusCode::kInvalidArgument, "is sparse");
  CHECK_STATUS(reader->SpecOf("colours"), StatusCode::kInvalidArgument, "has no table");
  CHECK(reader->SpecOf("features").value()->has_sparse());
  CHECK(reader->SpecOf("parameters").value()->elements() == 10);
  const auto all = [&] {
    return reader->AllRows("features", [](auto, auto) { return absl::OkStatus(); });
  };
  SECTION("torn") {
    source.spoil = [](v1::ReadSnapshotResponse* response) {
      response->mutable_values()->append("x");
    };
    CHECK_STATUS(reader->Rows("features", {1}), StatusCode::kDataLoss,
                 "9 bytes of rows: expected 8");
    CHECK_STATUS(all(), StatusCode::kDataLoss, "bytes of keys and rows");
    CHECK_STATUS(reader->Values("parameters"), StatusCode::kDataLoss, "25 bytes: expected 24");
  }
  SECTION("too few bits") {
    source.spoil = [](v1::ReadSnapshotResponse* response) { response->clear_found(); };
    CHECK_STATUS(reader->Rows("features", {1}), StatusCode::kDataLoss, "0 bytes of bits");
  }
  SECTION("no way on") {
    source.spoil = [](v1::ReadSnapshotResponse* response) {
      response->set_end(false);
      response->set_next_place(0);
    };
    CHECK_STATUS(all(), StatusCode::kDataLoss, "is to be asked from place 0 on");
  }
  SECTION("a key of another bucket") {
    source.rows[0][0] = 1;
    source.rows[0][1] = 2;
    source.rows[0][2] = 3;
    CHECK_STATUS(all(), StatusCode::kDataLoss, "expected bucket 0 and a higher place");
  }
}

}  // namespace
}  // namespace capstan::snapshot_reader_test
