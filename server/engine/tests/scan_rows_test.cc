// Scans of a held job: what is refused, and what an answer waits for.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/sparse/key_hash.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "server/engine/job/held_job.h"
#include "server/engine/testing/job_fixture.h"

namespace capstan::server::scan_rows_test {
namespace {

using absl::StatusCode;

constexpr int32_t kBuckets = 3;
constexpr ConsistencyRule kAsp{.mode = ConsistencyMode::kAsp};

std::vector<uint64_t> Keys(uint64_t count) {
  std::vector<uint64_t> keys;
  for (uint64_t key = 1; key <= count; ++key) keys.push_back(key);
  return keys;
}

// A scan as its caller sees it.
struct Scan {
  Scan(HeldJob& job, const v1::ScanRowsRequest& request) {
    id = job.calls().ScanRows(request, &response, [this](const absl::Status& status) {
      REQUIRE_FALSE(ended.has_value());
      ended = status;
    });
  }
  std::vector<uint64_t> keys() const {
    std::vector<uint64_t> keys(response.rows().size() / (8 + kTestDim * sizeof(float)));
    if (!keys.empty()) std::memcpy(keys.data(), response.rows().data(), 8 * keys.size());
    return keys;
  }
  v1::ScanRowsResponse response;
  std::optional<absl::Status> ended;
  std::optional<HeldJob::CallId> id;
};

absl::Status EndOf(HeldJob& job, const v1::ScanRowsRequest& request) {
  const Scan scan(job, request);
  REQUIRE(scan.ended.has_value());
  return *scan.ended;
}

void PushRows(HeldJob& job, const std::vector<uint64_t>& keys, uint64_t sequence = 1,
              int32_t buckets = kBuckets) {
  v1::PushResponse response;
  job.calls().Push(Detach(RowPushOf(0, buckets, keys, 1.0f, sequence)), &response,
                   [](const absl::Status&) {});
}

// A log whose disk has what the test says, and replicas whose answers the test makes.
class SlowSafety final : public RecordSink, public ReplicaTransport {
 public:
  void Begin(const JobId&, const ShardKey& shard, Term term,
             std::shared_ptr<const v1::ShardSnapshot> snapshot,
             std::shared_ptr<CapturedRows>) override {
    ends[shard] = {term, Position(snapshot->position())};
  }
  void Append(const JobId&, const ShardKey& shard, Term term,
              std::shared_ptr<const v1::ShardRecord> record) override {
    ends[shard] = {term, Position(record->position())};
  }
  void Continue(const JobId&, const ShardKey& shard, Term term, Position position) override {
    ends[shard] = {term, position};
  }
  void Forget(const JobId&, const ShardKey& shard) override { ends.erase(shard); }
  void ForgetJob(const JobId&) override { ends.clear(); }
  void Send(const v1::ServerAddress&, ReplicaRequest request, Moved, Done done) override {
    mail.emplace_back(std::move(request.message), std::move(done));
  }

  void SyncLog(HeldJob& job) {
    for (const auto& [shard, end] : ends) job.commits().OnLogged(shard, end.first, end.second);
  }
  // The replica takes everything that it is sent.
  void Answer() {
    while (!mail.empty()) {
      const auto [request, done] = std::move(mail.front());
      mail.pop_front();
      int64_t& held = held_[{request->table(), request->shard()}];
      if (request->has_install()) held = request->install().position();
      if (request->records_size() > 0) held = request->records().rbegin()->position();
      v1::ReplicateResponse response;
      response.set_term(request->term());
      response.set_position(held);
      done(absl::OkStatus(), response);
    }
  }

  std::map<ShardKey, std::pair<Term, Position>> ends;
  std::deque<std::pair<std::shared_ptr<const v1::ReplicateRequest>, Done>> mail;

 private:
  std::map<std::pair<int, int>, int64_t> held_;
};

TEST_CASE("Scan: every row of every bucket comes once, in the order of places", "[server]") {
  const auto job = MakeTestJob(TestJobOptions{.consistency = kAsp, .buckets = kBuckets});
  PushRows(*job, Keys(1000));
  PushRows(*job, {5, 6}, 2);
  std::map<uint64_t, int> seen;
  for (int32_t bucket = 0; bucket < kBuckets; ++bucket) {
    uint64_t place = 0;
    bool end = false;
    while (!end) {
      const Scan scan(*job, ScanOf(bucket, place, 500));
      REQUIRE_OK(*scan.ended);
      CHECK(scan.response.version() >= 1);
      for (const uint64_t key : scan.keys()) {
        const KeyPlace at = PlaceOf(KeyHash(key), kBuckets);
        REQUIRE(at.bucket == bucket);
        REQUIRE(at.place >= place);
        ++seen[key];
      }
      end = scan.response.end();
      CHECK((end || scan.response.next_place() > place));
      place = scan.response.next_place();
    }
  }
  CHECK(seen.size() == 1000);
  for (const auto& [key, times] : seen) CHECK(times == 1);
}

TEST_CASE("Scan: an answer has the weights behind the keys, and the version", "[server]") {
  const auto job = MakeTestJob(TestJobOptions{.consistency = kAsp, .buckets = 1});
  v1::PushResponse response;
  for (uint64_t i = 1; i <= 3; ++i) {
    job->calls().Push(Detach(RowPushOf(0, 1, {7}, 0.5f, i)), &response, [](const absl::Status&) {});
  }
  const Scan scan(*job, ScanOf(0));
  REQUIRE_OK(*scan.ended);
  CHECK(scan.response.version() == 3);
  CHECK(scan.response.end());
  REQUIRE(scan.keys() == std::vector<uint64_t>{7});
  float row[kTestDim];
  std::memcpy(row, scan.response.rows().data() + 8, sizeof(row));
  CHECK(row[0] == -1.5f);
  CHECK(row[1] == -1.5f);
}

TEST_CASE("Scan: what cannot be is refused by name", "[server]") {
  const auto job = MakeTestJob(TestJobOptions{.consistency = kAsp, .buckets = kBuckets});
  const auto kInvalid = StatusCode::kInvalidArgument;
  CHECK_STATUS(EndOf(*job, ScanOf(0, 0, 0)), kInvalid, "bytes_max 0: expected 1 to 4194304");
  CHECK_STATUS(EndOf(*job, ScanOf(0, 0, (4 << 20) + 1)), kInvalid, "bytes_max 4194305");
  CHECK_STATUS(EndOf(*job, ScanOf(kBuckets)), StatusCode::kNotFound,
               "scan of lenet-1: table 1 shard 3 is not held here");
  v1::ScanRowsRequest dense = ScanOf(0);
  dense.set_table(0);
  CHECK_STATUS(EndOf(*job, dense), kInvalid, "table 0 shard 0: a dense table has no rows by key");
  v1::ScanRowsRequest old = ScanOf(0);
  old.mutable_caller()->set_routing_generation(0);
  CHECK_STATUS(EndOf(*job, old), StatusCode::kFailedPrecondition, "fetch the routing table");
  old.mutable_caller()->set_routing_generation(2);
  CHECK_STATUS(EndOf(*job, old), StatusCode::kUnavailable, "try again");
  v1::ScanRowsRequest caller = ScanOf(0);
  caller.mutable_caller()->set_rank(-2);
  CHECK_STATUS(EndOf(*job, caller), kInvalid, "rank -2");
  job->Close(absl::NotFoundError("the job has ended"));
  CHECK_STATUS(EndOf(*job, ScanOf(0)), StatusCode::kNotFound, "the job has ended");
}

TEST_CASE("Scan: what changed since a version is told, of the rest the keys", "[server]") {
  const auto job = MakeTestJob(TestJobOptions{.consistency = kAsp, .buckets = 1});
  PushRows(*job, Keys(500), 1, 1);
  PushRows(*job, {5, 6, 900}, 2, 1);
  v1::ScanRowsRequest request = ScanOf(0);
  request.mutable_since()->set_version(1);
  {
    const Scan scan(*job, request);
    REQUIRE_OK(*scan.ended);
    CHECK(scan.keys().size() == 3);
    CHECK(scan.response.unchanged().empty());
    CHECK(scan.response.version() == 2);
  }
  request.mutable_since()->set_unchanged_keys(true);
  request.set_bytes_max(8 + kTestDim * 4);  // One row at a time.
  std::set<uint64_t> changed, unchanged;
  for (bool end = false; !end;) {
    const Scan scan(*job, request);
    REQUIRE_OK(*scan.ended);
    REQUIRE(scan.keys().size() <= 1);
    for (const uint64_t key : scan.keys()) REQUIRE(changed.insert(key).second);
    const std::string& bytes = scan.response.unchanged();
    for (size_t at = 0; at < bytes.size(); at += 8) {
      uint64_t key;
      std::memcpy(&key, bytes.data() + at, 8);
      REQUIRE(PlaceOf(KeyHash(key), 1).place >= request.place());
      REQUIRE(unchanged.insert(key).second);
    }
    end = scan.response.end();
    request.set_place(scan.response.next_place());
  }
  CHECK(changed == std::set<uint64_t>{5, 6, 900});
  CHECK(unchanged.size() == 498);
}

TEST_CASE("Scan: versions of the time before the job went back mean nothing", "[server]") {
  const auto job = MakeTestJob(TestJobOptions{.consistency = kAsp, .buckets = 1});
  PushRows(*job, Keys(5), 1, 1);
  v1::ScanRowsRequest request = ScanOf(0);
  request.mutable_since()->set_version(2);
  CHECK_STATUS(EndOf(*job, request), StatusCode::kInvalidArgument,
               "rows since version 2: expected 0 to 1");
  request.mutable_since()->set_version(1);
  REQUIRE_OK(EndOf(*job, request));
  // Its membership comes before the routing table of the shards that are read from a checkpoint.
  job->assignment().SetMembership(
      {.generation = Generation(1), .incarnation_floor = Incarnation(4)});
  REQUIRE_OK(EndOf(*job, request));
  v1::RoutingTable routing = TestRouting(2);
  AddBuckets(&routing, 1);
  TakeRouting(*job, routing);
  request.mutable_caller()->set_routing_generation(2);
  CHECK_STATUS(EndOf(*job, request), StatusCode::kOutOfRange,
               "version 1 is of timeline 0, the present one is 4");
}

TEST_CASE("Scan: a task may ask, one whose incarnation is over may not", "[server]") {
  const auto job = MakeTestJob(TestJobOptions{.consistency = kAsp, .buckets = kBuckets});
  v1::ScanRowsRequest task = ScanOf(0);
  *task.mutable_caller() = CallerOf(0, 2);
  REQUIRE_OK(EndOf(*job, task));
  job->assignment().SetMembership(
      {.generation = Generation(1), .members = {{.rank = Rank(0), .incarnation = Incarnation(3)}}});
  CHECK_STATUS(EndOf(*job, task), StatusCode::kAborted, "");
}

TEST_CASE("Scan: nothing is shown that could still be lost", "[server]") {
  SlowSafety safety;
  const auto job = MakeTestJob(TestJobOptions{
      .consistency = kAsp, .buckets = kBuckets, .safe_replies = true, .log = &safety});
  safety.SyncLog(*job);
  REQUIRE_OK(EndOf(*job, ScanOf(0)));
  PushRows(*job, Keys(100));
  const Scan scan(*job, ScanOf(0));
  REQUIRE_FALSE(scan.ended.has_value());
  SECTION("until the log has it") {
    safety.SyncLog(*job);
    REQUIRE_OK(*scan.ended);
    CHECK(scan.response.version() == 1);
    CHECK(scan.keys().size() > 10);
  }
  SECTION("and another primary ends the wait") {
    v1::RoutingTable routing = TestRouting(2, "server-2", 2);
    AddBuckets(&routing, kBuckets);
    TakeRouting(*job, routing);
    CHECK_STATUS(*scan.ended, StatusCode::kFailedPrecondition, "fetch the routing table");
  }
  SECTION("and a caller that is gone is forgotten") {
    job->calls().Cancel(*scan.id);
    CHECK(scan.ended->code() == StatusCode::kCancelled);
  }
}

TEST_CASE("Snapshot: nothing of it is shown that could still be lost", "[server]") {
  SlowSafety safety;
  const auto job = MakeTestJob(TestJobOptions{
      .consistency = kAsp, .buckets = kBuckets, .safe_replies = true, .log = &safety});
  safety.SyncLog(*job);
  PushRows(*job, Keys(100));  // Its task dies before it is told.
  v1::CheckpointOrder order;
  order.set_checkpoint_id(1);
  order.add_readers(7);
  REQUIRE_OK(job->snapshot_calls().Keep(order));
  v1::ReadSnapshotRequest request;
  request.set_snapshot_id(1);
  request.set_reader(7);
  request.mutable_bucket()->set_table(1);
  request.mutable_bucket()->set_bytes_max(1 << 20);
  v1::ReadSnapshotResponse response;
  std::optional<absl::Status> ended;
  job->snapshot_calls().Read(request, &response,
                             [&](const absl::Status& status) { ended = status; });
  REQUIRE_FALSE(ended.has_value());
  SECTION("until the log has it") {
    safety.SyncLog(*job);
    REQUIRE_OK(*ended);
    CHECK(response.version() == 1);
  }
  SECTION("and another primary ends the wait") {
    v1::RoutingTable routing = TestRouting(2, "server-2", 2);
    AddBuckets(&routing, kBuckets);
    TakeRouting(*job, routing);
    CHECK_STATUS(*ended, StatusCode::kFailedPrecondition, "fetch the routing table");
  }
}

TEST_CASE("Scan: a primary without a read lease asks its replicas first", "[server]") {
  SlowSafety safety;
  ManualClock clock;
  const auto job = MakeEmptyTestJob(TestJobOptions{.consistency = kAsp,
                                                   .buckets = 1,
                                                   .safe_replies = true,
                                                   .clock = &clock,
                                                   .transport = &safety});
  v1::RoutingTable routing = TestRouting(1);
  AddBuckets(&routing, 1);
  AddReplica(&routing, "server-2", /*in_sync=*/true);
  TakeRouting(*job, routing);
  job->assignment().SetReadLease(Instant() + absl::Seconds(1));
  safety.Answer();
  REQUIRE_OK(EndOf(*job, ScanOf(0)));
  clock.Advance(absl::Seconds(2));
  const Scan scan(*job, ScanOf(0));
  CHECK_FALSE(scan.ended.has_value());
  safety.Answer();
  REQUIRE_OK(*scan.ended);
}

}  // namespace
}  // namespace capstan::server::scan_rows_test
