// Tests of the calls that a job makes to its log, and of what it does when the log fails.
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/engine/job/held_job.h"
#include "server/engine/job/held_jobs.h"
#include "server/engine/shard_link.h"
#include "server/engine/testing/job_fixture.h"
#include "server/engine/testing/memory_log.h"

namespace capstan::server::log_sink_test {
namespace {

std::shared_ptr<HeldJob> MakeLoggedJob(MemoryLog* log, int32_t buckets = 0,
                                       int64_t snapshot_bytes_max = ShardLink::kLogSnapshotBytesMax,
                                       const std::string& unique_id = "aa-1") {
  TestJobOptions options{.consistency = {.mode = ConsistencyMode::kAsp}, .safe_replies = true};
  options.buckets = buckets;
  options.log_snapshot_bytes_max = snapshot_bytes_max;
  options.log = log;
  options.unique_id = unique_id;
  return MakeEmptyTestJob(options);
}

// Makes the job replica of a term of server-2, which installs one of its shards.
void Install(HeldJob& job, uint64_t term, int shard, v1::ReplicateResponse* response,
             HeldJob::Done done) {
  v1::RoutingTable routing = TestRouting(term, "server-2", term);
  AddReplica(&routing, "server-1", /*in_sync=*/false);
  job.assignment().SetRouting(routing, {});
  const HeldShard held{
      {TableId(0), ShardId(shard)},
      {routing.shards(shard).element_begin(), routing.shards(shard).element_end()}};
  v1::ReplicateRequest request;
  request.set_shard(shard);
  request.set_sender("server-2");
  request.set_term(term);
  request.set_routing_generation(term);
  *request.mutable_install() = job.factory().Initial(held)->Snapshot().value();
  job.replica_calls().Replicate(request, response, std::move(done));
}

TEST_CASE("Log sink: a log begins anew with a shard that was made from elsewhere", "[server]") {
  MemoryLog log;
  const auto job = MakeLoggedJob(&log);
  const auto take = [&](uint64_t term, const ShardSources& sources) {
    const v1::RoutingTable routing = TestRouting(term, "server-1", term);
    TakeRouting(*job, routing, sources);
  };
  take(1, {});
  CHECK(log.begins == 2);
  SECTION("at the same position, by chance") {
    take(2, {.restore_term = Term(2), .log_term = {}});
    CHECK(log.begins == 4);
    CHECK(log.continues == 0);
  }
  SECTION("what is held goes on in a later term") {
    take(2, {});
    CHECK(log.begins == 2);
    CHECK(log.continues == 2);
  }
}

TEST_CASE("Log sink: a shard that was read from the log goes on there", "[server]") {
  MemoryLog log;
  const ShardKey kFirst{TableId(0), ShardId(0)}, kSecond{TableId(0), ShardId(1)};
  log.ends = {{kFirst, {Term(1), Position(0)}}, {kSecond, {Term(1), Position(0)}}};
  const auto job = MakeLoggedJob(&log);
  const v1::RoutingTable routing = TestRouting(5, "server-1", 5);
  REQUIRE_OK_AND_ASSIGN(
      const std::vector<ShardOrder> orders,
      job->assignment().MissingShards(routing, {.restore_term = {}, .log_term = Term(5)}));
  std::vector<MadeShard> made;
  for (const ShardOrder& order : orders) {
    CHECK(order.from == ShardOrder::From::kLog);
    made.push_back({.order = order, .shard = job->factory().Initial(order.shard).value()});
  }
  job->assignment().SetRouting(routing, std::move(made));
  CHECK(log.begins == 0);
  CHECK(log.continues == 2);
  CHECK(log.ends.at(kSecond) == std::pair(Term(5), Position(0)));
}

TEST_CASE("Log sink: few of the shards that are due a snapshot are copied at a time", "[server]") {
  constexpr int32_t kBuckets = 6;
  constexpr int kShards = 2 + kBuckets;
  MemoryLog log;
  const auto job = MakeLoggedJob(&log, kBuckets, /*snapshot_bytes_max=*/1);
  v1::RoutingTable routing = TestRouting(1);
  AddBuckets(&routing, kBuckets);
  TakeRouting(*job, routing);
  CHECK(log.begins == 1);
  // The first one is on the disk: the next ones follow, one by one, with nothing else to do it.
  while (log.begins < kShards) {
    const int before = log.begins;
    log.SyncBegun(*job);
    REQUIRE(log.begins == before + 1);
  }
  log.Sync(*job);
  const int before = log.begins;
  std::vector<uint64_t> keys;
  for (uint64_t key = 1; key <= 60'000; ++key) keys.push_back(key);
  uint64_t sequence = 0;
  const auto push = [&] {
    v1::PushResponse response;
    job->calls().Push(Detach(RowPushOf(0, kBuckets, keys, -1.0f, ++sequence)), &response,
                      [](const absl::Status&) {});
  };
  const auto record_bytes = static_cast<int64_t>(keys.size() * (8 + kTestDim * 4)) / kBuckets;
  for (int64_t bytes = 0; bytes < ShardLink::kLogBytesMin * 11 / 10; bytes += record_bytes) push();
  CHECK(log.begins == before + 1);
  push();
  CHECK(log.begins == before + 1);
  for (int i = 0; i < kBuckets; ++i) {
    log.Sync(*job);
    push();
  }
  CHECK(log.begins == before + kBuckets);
}

TEST_CASE("Log sink: what holds up the others is let go with its shard", "[server]") {
  MemoryLog log;
  const auto job = MakeLoggedJob(&log, 0, /*snapshot_bytes_max=*/1);
  SECTION("that is held here no more") {
    TakeRouting(*job, TestRouting(1));
    CHECK(log.begins == 1);
    v1::RoutingTable routing = TestRouting(2);
    routing.mutable_shards(0)->set_server(1);
    AddReplica(&routing, "server-2", /*in_sync=*/false);
    routing.mutable_shards(0)->clear_replicas();
    job->assignment().SetRouting(routing, {});
    CHECK(log.begins == 2);
  }
  SECTION("that is installed anew") {
    v1::ReplicateResponse response;
    const auto install = [&](uint64_t term, int shard) {
      Install(*job, term, shard, &response, [](const absl::Status&) {});
    };
    install(1, 0);
    CHECK(log.begins == 1);
    install(1, 1);
    CHECK(log.begins == 1);
    install(2, 0);  // The rows of the first are there no more: the log will say nothing of it.
    CHECK(log.begins == 2);
  }
}

TEST_CASE("Log sink: late reports of a dropped job's log are not the next one's", "[server]") {
  MemoryLog log;
  HeldJobs jobs;
  const auto late_reports = [&jobs] {
    jobs.OnLogFailed("lenet-1", "aa-1", absl::ResourceExhaustedError("wal-1: no space"));
    jobs.OnLogged("lenet-1", "aa-1", {TableId(0), ShardId(0)}, Term(1), Position(100));
  };
  jobs.Add(MakeLoggedJob(&log));
  jobs.Drop("lenet-1");
  late_reports();
  const auto job = MakeLoggedJob(&log, /*buckets=*/0, ShardLink::kLogSnapshotBytesMax, "bb-2");
  jobs.Add(job);
  TakeRouting(*job, TestRouting(1));
  late_reports();
  REQUIRE_OK(job->failure());
  v1::PushResponse response;
  std::optional<absl::Status> ended;
  job->calls().Push(Detach(PushOf(0, 0, -1, 1.0f, 1)), &response,
                    [&](const absl::Status& status) { ended = status; });
  CHECK_FALSE(ended.has_value());  // Its own log has not said anything yet.
  for (const auto& [shard, end] : log.ends) {
    jobs.OnLogged("lenet-1", "bb-2", shard, end.first, end.second);
  }
  REQUIRE(ended.has_value());
  REQUIRE_OK(*ended);
}

TEST_CASE("Log sink: a log that fails fails the job", "[server]") {
  MemoryLog log;
  const auto job = MakeLoggedJob(&log);
  TakeRouting(*job, TestRouting(1));
  v1::PushResponse response;
  std::optional<absl::Status> ended;
  job->calls().Push(Detach(PushOf(0, 0, -1, 1.0f, 1)), &response,
                    [&](const absl::Status& status) { ended = status; });
  CHECK_FALSE(ended.has_value());
  job->Fail(absl::UnavailableError("wal-3: no space"));
  CHECK_STATUS(*ended, absl::StatusCode::kUnavailable, "no space");
  CHECK_STATUS(job->failure(), absl::StatusCode::kUnavailable, "no space");
}

TEST_CASE("Log sink: a log that fails ends what a replica has still to answer", "[server]") {
  MemoryLog log;
  const auto job = MakeLoggedJob(&log);
  v1::ReplicateResponse response;
  std::optional<absl::Status> ended;
  Install(*job, 1, 0, &response, [&](const absl::Status& status) { ended = status; });
  CHECK_FALSE(ended.has_value());
  job->Fail(absl::UnavailableError("wal-3: no space"));
  REQUIRE(ended.has_value());
  CHECK_STATUS(*ended, absl::StatusCode::kUnavailable, "no space");
}

}  // namespace
}  // namespace capstan::server::log_sink_test
