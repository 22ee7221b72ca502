#include "common/row_export/table_scan.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "common/row_export/testing/fake_row_source.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"

namespace capstan::table_scan_test {
namespace {

using absl::StatusCode;

constexpr int32_t kDim = 3;
constexpr int32_t kRowBytes = 8 + 4 * kDim;

// Rows that a scan has brought, by key; each once, as the server has it.
class Received {
 public:
  explicit Received(const FakeRowSource& source) : source_(source) {}
  RowSink Sink() {
    return [this](const RowBatch& rows) {
      REQUIRE(rows.values.size() == rows.keys.size() * kDim);
      for (size_t i = 0; i < rows.keys.size(); ++i) {
        const auto begin = rows.values.begin() + static_cast<int64_t>(i) * kDim;
        REQUIRE(std::vector<float>(begin, begin + kDim) == source_.Row(rows.keys[i]));
        ++times[rows.keys[i]];
      }
      return absl::OkStatus();
    };
  }
  void CheckOnce(uint64_t begin, uint64_t end) const {
    for (uint64_t key = begin; key < end; ++key) {
      const auto it = times.find(key);
      if (it == times.end() || it->second != 1) FAIL("key " << key);
    }
  }
  std::map<uint64_t, int> times;

 private:
  const FakeRowSource& source_;
};

TableScan::Options ReaderOf(int32_t rows) {
  TableScan::Options options{.bytes_max = rows * kRowBytes};
  options.caller.set_job_id("ctr-1");
  options.caller.set_rank(-1);
  return options;
}

absl::StatusOr<ScannedTable> Scan(FakeRowSource& source, const RowSink& sink,
                                  const TableScan::Options& options = ReaderOf(7)) {
  return ScanTable(options, source.table(), source.routing, source.clock, source, sink);
}

TEST_CASE("Table scan: all rows of all buckets come once, in their order", "[common]") {
  const int32_t buckets = GENERATE(1, 2, 5);
  const uint64_t count = GENERATE(0, 1, 100);
  FakeRowSource source(buckets, kDim);
  source.Route({"server-1", "server-2"});
  for (uint64_t key = 0; key < count; ++key) source.Put(key);
  Received received(source);
  REQUIRE_OK_AND_ASSIGN(const ScannedTable scanned, Scan(source, received.Sink()));
  received.CheckOnce(0, count);
  CHECK(received.times.size() == count);
  CHECK(scanned.rows == static_cast<int64_t>(count));
  CHECK(scanned.version == 10);
  for (const v1::ScanRowsRequest& request : source.asked) {
    CHECK(request.caller().job_id() == "ctr-1");
    CHECK(request.caller().rank() == -1);
    CHECK(request.caller().routing_generation() == 2);
    CHECK(request.table() == 3);
    CHECK(request.bytes_max() == 7 * kRowBytes);
  }
}

TEST_CASE("Table scan: rows that stay come once, while others come and go", "[common]") {
  FakeRowSource source(2, kDim);
  for (uint64_t key = 0; key < 200; ++key) source.Put(key);
  uint64_t next = 1000;
  source.before = [&](int) {
    for (int i = 0; i < 5; ++i) source.Put(next++);
    if (next > 1100) source.Erase(next - 100);
    return absl::OkStatus();
  };
  Received received(source);
  REQUIRE_OK(Scan(source, received.Sink()).status());
  received.CheckOnce(0, 200);
  for (const auto& [key, times] : received.times) CHECK(times == 1);
}

TEST_CASE("Table scan: after a failover it goes on where it was, at another server", "[common]") {
  FakeRowSource source(3, kDim);
  for (uint64_t key = 0; key < 300; ++key) source.Put(key);
  Received received(source);
  const int failover = GENERATE(0, 1, 5, 20);
  source.before = [&](int call) {
    if (call == failover) source.failed["server-1"] = true;
    if (call == failover + 3) source.Route({"server-2"});
    return absl::OkStatus();
  };
  REQUIRE_OK_AND_ASSIGN(const ScannedTable scanned, Scan(source, received.Sink()));
  received.CheckOnce(0, 300);
  CHECK(scanned.rows == 300);
  CHECK(source.clock.Now() < Instant() + absl::Seconds(1));
}

TEST_CASE("Table scan: what may pass is tried again, with the newest routing table", "[common]") {
  FakeRowSource source(1, kDim);
  for (uint64_t key = 0; key < 50; ++key) source.Put(key);
  Received received(source);
  const StatusCode code = GENERATE(StatusCode::kUnavailable, StatusCode::kNotFound,
                                   StatusCode::kFailedPrecondition, StatusCode::kDeadlineExceeded);
  source.before = [&](int call) {
    if (call == 4) source.Route({"server-2", "server-1"});
    source.routing_failure =
        call < 4 ? absl::UnavailableError("the scheduler is away") : absl::OkStatus();
    return call == 2 || call == 3 ? absl::Status(code, "not now") : absl::OkStatus();
  };
  REQUIRE_OK(Scan(source, received.Sink()).status());
  received.CheckOnce(0, 50);
  CHECK(source.asked.back().caller().routing_generation() == 2);
}

TEST_CASE("Table scan: patience ends, naming bucket, server and the last error", "[common]") {
  FakeRowSource source(4, kDim);
  source.Route({"server-1", "server-2"});
  source.failed["server-2"] = true;
  TableScan::Options options = ReaderOf(7);
  options.patience = absl::Seconds(10);
  const auto scanned = Scan(
      source, [](const RowBatch&) { return absl::OkStatus(); }, options);
  CHECK_STATUS(scanned, StatusCode::kUnavailable,
               "table features, bucket 1 of 4, server server-2 at server-2:1: no rows for 10");
  CHECK(scanned.status().message().find("UNAVAILABLE: no answer") != absl::string_view::npos);
  CHECK(source.clock.Now() < Instant() + absl::Seconds(11));
}

TEST_CASE("Table scan: an answer in between renews the patience", "[common]") {
  FakeRowSource source(1, kDim);
  for (uint64_t key = 0; key < 50; ++key) source.Put(key);
  TableScan::Options options = ReaderOf(7);
  options.patience = absl::Seconds(1);
  source.before = [&](int call) {
    return call % 4 == 3 ? absl::OkStatus() : absl::UnavailableError("busy");
  };
  Received received(source);
  source.clock.Advance(absl::Seconds(5));
  REQUIRE_OK(Scan(source, received.Sink(), options).status());
  received.CheckOnce(0, 50);
}

TEST_CASE("Table scan: what cannot pass ends it at once", "[common]") {
  FakeRowSource source(1, kDim);
  const auto nothing = [](const RowBatch&) { return absl::OkStatus(); };
  SECTION("a server's refusal") {
    source.before = [](int) { return absl::AbortedError("this incarnation is fenced off"); };
    CHECK_STATUS(Scan(source, nothing), StatusCode::kAborted,
                 "server server-1 at server-1:1: this incarnation is fenced off");
    CHECK(source.calls == 1);
  }
  SECTION("a job that has ended") {
    source.failed["server-1"] = true;
    source.routing_failure = absl::FailedPreconditionError("ctr-1 has ended");
    CHECK_STATUS(Scan(source, nothing), StatusCode::kFailedPrecondition,
                 "fetching the routing table: ctr-1 has ended");
  }
  SECTION("a sink that is full") {
    source.Put(1);
    CHECK_STATUS(
        Scan(source, [](const RowBatch&) { return absl::ResourceExhaustedError("disk full"); }),
        StatusCode::kResourceExhausted, "disk full");
  }
}

TEST_CASE("Table scan: answers that cannot be are refused, naming the server", "[common]") {
  FakeRowSource source(2, kDim);
  for (uint64_t key = 0; key < 40; ++key) source.Put(key);
  const auto refused = [&](const std::function<void(v1::ScanRowsResponse*)>& spoil, int rows = 7) {
    source.spoil = spoil;
    const auto scanned =
        Scan(
            source, [](const RowBatch&) { return absl::OkStatus(); }, ReaderOf(rows))
            .status();
    CHECK(scanned.code() == StatusCode::kDataLoss);
    CHECK(scanned.message().find("server server-1") != absl::string_view::npos);
    return std::string(scanned.message());
  };
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(refused([](auto* response) { response->mutable_rows()->pop_back(); }),
      "got 139 bytes of keys and rows, expected a multiple of 20");
  has(refused([](auto* response) { response->mutable_rows()->resize(6 * 20 + 8); }),
      "got 128 bytes");  // A key without its row.
  has(refused([](auto* response) {
        std::swap((*response->mutable_rows())[0], (*response->mutable_rows())[8]);
      }),
      "expected bucket 0 and a place");
  // The same rows again: below the place that was asked for.
  std::string first;
  has(refused([&](auto* response) {
        if (first.empty()) first = response->rows();
        response->set_rows(first);
      }),
      "expected bucket 0 and a place from ");
  has(refused(
          [](auto* response) {
            response->set_rows(response->rows().substr(0, 8) + response->rows().substr(0, 8) +
                               std::string(24, '\0'));
          },
          2),
      "and a place above ");
  has(refused([](auto* response) {
        response->clear_rows();
        response->set_end(false);
        response->set_next_place(0);
      }),
      "is to be asked from place 0 on: expected one above 0");
}

TEST_CASE("Table scan: routing tables and tables that cannot be are refused", "[common]") {
  FakeRowSource source(3, kDim);
  const auto make = [&](const v1::RoutingTable& routing) {
    return TableScan::Make(ReaderOf(1), source.table(), routing).status();
  };
  REQUIRE_OK(make(source.routing));
  v1::RoutingTable bad = source.routing;
  bad.mutable_shards()->RemoveLast();
  CHECK_STATUS(make(bad), StatusCode::kDataLoss, "has 2 of 3 buckets of table features");
  bad = source.routing;
  bad.mutable_shards(2)->set_server(1);
  CHECK_STATUS(make(bad), StatusCode::kDataLoss, "shard 1 of table features is [1, 2) on server 1");
  bad = source.routing;
  *bad.add_shards() = bad.shards(3);
  CHECK_STATUS(make(bad), StatusCode::kDataLoss, "expected bucket 3 of 3");
  bad = source.routing;
  bad.mutable_shards(2)->set_element_end(3);
  CHECK_STATUS(make(bad), StatusCode::kDataLoss, "is [1, 3)");
  v1::TableSpec dense = source.table();
  dense.set_rule(v1::OPTIMIZER);
  dense.clear_sparse();
  dense.set_elements(0);
  CHECK(TableScan::Make(ReaderOf(1), dense, source.routing).status().code() ==
        StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace capstan::table_scan_test
