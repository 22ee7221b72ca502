// Snapshots of a job: what readers read is the moment at which it was taken, whatever is pushed.
#include "server/snapshots/job_snapshots.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "common/sparse/key_batch.h"
#include "common/sparse/key_hash.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "server/engine/job/held_job.h"
#include "server/engine/testing/job_fixture.h"
#include "server/store/memory_budget.h"
#include "server/store/sparse/testing/memory_row_disks.h"

namespace capstan::server::job_snapshots_test {
namespace {

constexpr int32_t kBuckets = 2;
constexpr uint64_t kKeys = 3000;
constexpr uint64_t kAnn = 11;
constexpr uint64_t kBob = 12;

using Rows = std::map<uint64_t, float>;  // Keyed by key; a row's two numbers are equal.

float NumberAt(const std::string& bytes, size_t index) {
  float number = 0;
  std::memcpy(&number, bytes.data() + index * sizeof(float), sizeof(float));
  return number;
}

struct SnapshotJob {
  explicit SnapshotJob(int64_t memory_bytes = 0, const MemoryBudget::Limits& limits = {},
                       const SnapshotLeases::Limits& snapshots = {})
      : budget(std::make_shared<MemoryBudget>(limits)) {
    TestJobOptions options;
    options.consistency = {.mode = ConsistencyMode::kAsp};
    options.buckets = kBuckets;
    options.memory_bytes = memory_bytes;
    options.disks = &disks;
    options.budget = budget;
    options.snapshots = snapshots;
    options.clock = &clock;
    job = MakeTestJob(options);
  }

  void Push(const std::vector<uint64_t>& keys, float gradient) {
    Push(RowPushOf(0, kBuckets, keys, gradient, ++sequence));
    for (const uint64_t key : keys) rows[key] -= gradient;
  }
  void PushRange(uint64_t first, uint64_t last, float gradient) {
    std::vector<uint64_t> keys;
    for (uint64_t key = first; key < last; ++key) keys.push_back(key);
    Push(keys, gradient);
  }
  void PushSome() {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < 100; ++i) keys.push_back(MixKey(sequence, i) % kKeys);
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    Push(keys, static_cast<float>(1 + sequence % 3));
  }
  void PushDense(float gradient) {
    Push(PushOf(0, 0, -1, gradient, ++sequence));
    values -= gradient;
  }
  void Push(const v1::PushRequest& request) {
    v1::PushResponse response;
    absl::Status ended = absl::UnknownError("the push waits");
    job->calls().Push(Detach(request), &response,
                      [&](const absl::Status& status) { ended = status; });
    REQUIRE_OK(ended);
  }

  absl::Status Keep(uint64_t id, const std::vector<uint64_t>& readers = {kAnn}) {
    v1::CheckpointOrder order;
    order.set_checkpoint_id(id);
    for (const uint64_t reader : readers) order.add_readers(reader);
    return job->snapshot_calls().Keep(order);
  }
  absl::StatusOr<v1::ReadSnapshotResponse> Ask(v1::ReadSnapshotRequest request, uint64_t id,
                                               uint64_t reader = kAnn) {
    request.set_job_id("lenet-1");
    request.set_snapshot_id(id);
    request.set_reader(reader);
    v1::ReadSnapshotResponse response;
    absl::Status ended = absl::UnknownError("the read waits");
    job->snapshot_calls().Read(request, &response,
                               [&](const absl::Status& status) { ended = status; });
    if (!ended.ok()) return ended;
    return response;
  }
  absl::Status Renew(uint64_t id, uint64_t reader = kAnn) { return Ask({}, id, reader).status(); }
  void Close(uint64_t id, uint64_t reader = kAnn) {
    v1::CloseSnapshotRequest request;
    request.set_snapshot_id(id);
    request.set_reader(reader);
    job->snapshot_calls().Close(request);
  }

  // The rows of keys [0, kKeys), read by key.
  Rows ReadByKey(uint64_t id) {
    std::vector<uint64_t> keys(kKeys);
    for (uint64_t key = 0; key < kKeys; ++key) keys[key] = key;
    const KeyBatch batch = MakeKeyBatch(keys, kBuckets);
    Rows read;
    for (int32_t bucket = 0; bucket < kBuckets; ++bucket) {
      const Range range = batch.InBucket(bucket);
      v1::ReadSnapshotRequest request;
      request.mutable_rows()->set_table(1);
      request.mutable_rows()->set_shard(bucket);
      request.mutable_rows()->set_keys(batch.keys.data() + range.begin,
                                       static_cast<size_t>(range.size()) * sizeof(uint64_t));
      REQUIRE_OK_AND_ASSIGN(const v1::ReadSnapshotResponse response, Ask(request, id));
      size_t found = 0;
      for (int64_t i = 0; i < range.size(); ++i) {
        if ((response.found()[static_cast<size_t>(i / 8)] >> i % 8 & 1) == 0) continue;
        const uint64_t key = batch.keys[static_cast<size_t>(range.begin + i)];
        read[key] = NumberAt(response.values(), kTestDim * found);
        CHECK(NumberAt(response.values(), kTestDim * found + 1) == read[key]);
        ++found;
      }
      CHECK(response.values().size() == found * kTestDim * sizeof(float));
    }
    return read;
  }
  // All, bucket by bucket, in pieces.
  Rows ReadBuckets(uint64_t id, int* pieces = nullptr) {
    Rows read;
    for (int32_t bucket = 0; bucket < kBuckets; ++bucket) {
      v1::ReadSnapshotRequest request;
      request.mutable_bucket()->set_table(1);
      request.mutable_bucket()->set_shard(bucket);
      request.mutable_bucket()->set_bytes_max(4096);
      for (bool end = false; !end;) {
        REQUIRE_OK_AND_ASSIGN(const v1::ReadSnapshotResponse response, Ask(request, id));
        const size_t row_bytes = sizeof(uint64_t) + kTestDim * sizeof(float);
        REQUIRE(response.values().size() % row_bytes == 0);
        const size_t count = response.values().size() / row_bytes;
        for (size_t i = 0; i < count; ++i) {
          uint64_t key = 0;
          std::memcpy(&key, response.values().data() + i * sizeof(uint64_t), sizeof(key));
          CHECK_FALSE(read.contains(key));
          read[key] = NumberAt(response.values().substr(count * sizeof(uint64_t)), kTestDim * i);
        }
        end = response.end();
        request.mutable_bucket()->set_place(response.next_place());
        if (pieces != nullptr) ++*pieces;
        PushSome();
      }
    }
    return read;
  }
  int64_t Held() const { return budget->HeldBy("lenet-1"); }

  ManualClock clock;
  MemoryRowDisks disks;
  std::shared_ptr<MemoryBudget> budget;
  std::shared_ptr<HeldJob> job;
  uint64_t sequence = 0;
  Rows rows;         // The rows.
  float values = 0;  // The value of all dense elements.
};

v1::ReadSnapshotRequest ValuesOf(int32_t shard) {
  v1::ReadSnapshotRequest request;
  request.mutable_values()->set_shard(shard);
  return request;
}

TEST_CASE("Snapshots: rows are those of the moment, whatever is pushed meanwhile", "[server]") {
  const int64_t limit = GENERATE(int64_t{0}, int64_t{60'000});  // A third of the payloads.
  SnapshotJob job(limit);
  for (int i = 0; i < 20; ++i) job.PushSome();
  REQUIRE_OK(job.Keep(1));
  const Rows first = job.rows;
  CHECK(first.size() < kKeys);
  for (int i = 0; i < 20; ++i) job.PushSome();
  REQUIRE_OK(job.Keep(2));
  const Rows second = job.rows;
  CHECK(second.size() > first.size());
  job.PushRange(0, kKeys, 1.0f);
  CHECK((job.ReadByKey(1) == first));
  CHECK((job.ReadByKey(2) == second));
  int pieces = 0;
  CHECK((job.ReadBuckets(1, &pieces) == first));
  CHECK(pieces > 4);
  job.Close(1);
  CHECK((job.ReadBuckets(2) == second));
  CHECK((job.ReadByKey(2) == second));
  CHECK(job.job->snapshot_calls().open() == std::vector<CheckpointId>{CheckpointId(2)});
}

TEST_CASE("Snapshots: values of a dense table are those of the moment", "[server]") {
  SnapshotJob job;
  job.PushDense(1.0f);
  REQUIRE_OK(job.Keep(7));
  job.PushDense(2.0f);
  job.PushDense(4.0f);
  for (const int32_t shard : {0, 1}) {
    REQUIRE_OK_AND_ASSIGN(const v1::ReadSnapshotResponse read, job.Ask(ValuesOf(shard), 7));
    REQUIRE(read.values().size() == kTestShardElements[shard] * sizeof(float));
    CHECK(NumberAt(read.values(), 0) == -1.0f);
    CHECK(NumberAt(read.values(), 7) == -1.0f);
    CHECK(read.version() == 1);
    CHECK(read.lease_ms() == 30'000);
  }
}

TEST_CASE("Snapshots: what nobody reads any more is kept no longer", "[server]") {
  SnapshotJob job(0, {}, {.lease = absl::Seconds(30)});
  job.PushRange(0, kKeys, 1.0f);
  const int64_t before = job.Held();
  REQUIRE_OK(job.Keep(1, {kAnn, kBob}));
  job.PushRange(0, kKeys, 1.0f);
  const int64_t open = job.Held();
  CHECK(open > before + static_cast<int64_t>(kKeys * kTestDim * sizeof(float)));
  SECTION("its readers have closed it") {
    job.Close(1, kAnn);
    CHECK(job.Held() == open);
    REQUIRE_OK(job.Renew(1, kBob));
    job.Close(1, kBob);
  }
  SECTION("its readers have vanished") {
    CHECK(job.job->NextDeadline() == job.clock.Now() + absl::Seconds(30));
    job.clock.Advance(absl::Seconds(29));
    REQUIRE_OK(job.Renew(1));
    job.clock.Advance(absl::Seconds(29));
    job.job->Tick(job.clock.Now());
    CHECK(job.Held() == open);
    job.clock.Advance(absl::Seconds(1));
    job.job->Tick(job.clock.Now());
  }
  CHECK(job.Held() == before);
  CHECK(job.job->snapshot_calls().open().empty());
  CHECK_STATUS(job.Renew(1), absl::StatusCode::kNotFound, "snapshot 1 is not kept here");
}

TEST_CASE("Snapshots: what is kept is on the job's account, and ends where it has no room",
          "[server]") {
  constexpr int64_t kLimit = 300'000;
  SnapshotJob job(0, {.one_job = kLimit});
  job.PushRange(0, kKeys, 1.0f);
  REQUIRE(job.Held() < kLimit);
  const int64_t before = job.Held();
  REQUIRE_OK(job.Keep(1));
  v1::CheckpointOrder order;
  order.set_checkpoint_id(5);
  order.set_folder("somewhere");
  REQUIRE_OK_AND_ASSIGN(const std::vector<CapturedShard> captured,
                        job.job->captures().Capture(order));
  job.PushRange(0, 100, 1.0f);
  REQUIRE_OK(job.Renew(1));
  job.PushRange(0, kKeys, 1.0f);  // The push is not lost for it.
  CHECK(job.Held() <= before + 1000);
  CHECK_STATUS(job.Renew(1), absl::StatusCode::kResourceExhausted,
               "snapshot 1 has ended: what updates have changed since it was taken: ");
  CHECK_STATUS(job.Renew(1), absl::StatusCode::kResourceExhausted, "--job-memory-limit allows");
  REQUIRE_OK(job.job->failure());
  // Nor is a checkpoint.
  int64_t rows = 0;
  for (const CapturedShard& shard : captured) {
    if (shard.rows == nullptr) continue;
    while (true) {
      REQUIRE_OK_AND_ASSIGN(const auto piece, shard.rows->Next());
      if (!piece.has_value()) break;
      rows += static_cast<int64_t>(piece->bucket().stamps().size() / sizeof(uint32_t));
    }
  }
  CHECK(rows == static_cast<int64_t>(kKeys));
}

TEST_CASE("Snapshots: one for which there is no room is refused, and nothing is kept", "[server]") {
  SnapshotJob job(0, {.one_job = 40'000});
  const int64_t before = job.Held();
  SnapshotJob tight(0, {.one_job = before + 50});  // Dense values take 96 bytes.
  CHECK_STATUS(tight.Keep(1), absl::StatusCode::kResourceExhausted,
               "table 0 shard 0: needs 64 bytes: job lenet-1 here holds");
  CHECK(tight.Held() == before);
  CHECK_STATUS(tight.Renew(1), absl::StatusCode::kNotFound, "");
  for (uint64_t id = 1; id <= 8; ++id) REQUIRE_OK(job.Keep(id));
  CHECK_STATUS(job.Keep(9), absl::StatusCode::kResourceExhausted, "8 snapshots of the job are");
  job.Close(3);
  REQUIRE_OK(job.Keep(9));
}

TEST_CASE("Snapshots: one of which a shard has gone ends, by name", "[server]") {
  SnapshotJob job;
  job.PushRange(0, 100, 1.0f);
  REQUIRE_OK(job.Keep(1));
  job.PushRange(0, 100, 1.0f);
  SECTION("it is elsewhere now") {
    TakeRouting(*job.job, TestRouting(2));  // This routing lacks table 1.
    CHECK_STATUS(job.Ask(ValuesOf(0), 1), absl::StatusCode::kAborted,
                 "snapshot 1 has ended: table 1 shard 0 has left this server");
  }
  SECTION("it went and came") {
    TakeRouting(*job.job, TestRouting(2));
    v1::RoutingTable again = TestRouting(3);
    AddBuckets(&again, kBuckets);
    TakeRouting(*job.job, again);
    CHECK_STATUS(job.Renew(1), absl::StatusCode::kAborted, "table 1 shard 0 has left");
  }
  SECTION("the job is dropped") {
    job.job->Close(absl::NotFoundError("the job has ended"));
    CHECK_STATUS(job.Renew(1), absl::StatusCode::kNotFound, "the job has ended");
    CHECK_STATUS(job.Keep(2), absl::StatusCode::kNotFound, "the job has ended");
  }
}

TEST_CASE("Snapshots: a server that is a replica now goes on with what it has kept", "[server]") {
  SnapshotJob job;
  job.PushRange(0, 100, 1.0f);
  REQUIRE_OK(job.Keep(1));
  const Rows then = job.rows;
  v1::RoutingTable routing = TestRouting(2, "server-2", 2);
  AddBuckets(&routing, kBuckets);
  AddReplica(&routing, "server-1", /*in_sync=*/true);
  TakeRouting(*job.job, routing);
  CHECK((job.ReadByKey(1) == then));
}

TEST_CASE("Snapshots: a question that cannot be is refused, and the snapshot goes on", "[server]") {
  SnapshotJob job;
  job.PushRange(0, 100, 1.0f);
  REQUIRE_OK(job.Keep(1));
  const auto refused = [&](const v1::ReadSnapshotRequest& request, const std::string& why) {
    CHECK_STATUS(job.Ask(request, 1), absl::StatusCode::kInvalidArgument, why);
  };
  v1::ReadSnapshotRequest request;
  request.mutable_rows()->set_shard(0);
  refused(request, "table 0 shard 0: a dense table has no rows by key");
  request.mutable_rows()->set_table(1);
  request.mutable_rows()->set_keys("seven b");
  refused(request, "table 1 shard 0: 7 bytes of keys");
  request.mutable_rows()->set_shard(9);
  refused(request, "table 1 shard 9 is not in this server's part of the snapshot");
  request.mutable_bucket()->set_table(1);
  request.mutable_bucket()->set_bytes_max(0);
  refused(request, "bytes_max 0: expected 1 to 4194304");
  request.mutable_bucket()->set_table(0);
  request.mutable_bucket()->set_bytes_max(1);
  refused(request, "table 0 shard 0: a dense table");
  request.mutable_values()->set_table(1);
  refused(request, "table 1 shard 0: a bucket of a sparse table");
  std::string many(static_cast<size_t>((4 << 20) / kTestDim / sizeof(float) + 1) * 8, '\0');
  const KeyBatch batch = [&] {
    std::vector<uint64_t> keys;
    for (uint64_t key = 0; keys.size() < many.size() / 8; ++key) {
      if (PlaceOf(KeyHash(key), kBuckets).bucket == 0) keys.push_back(key);
    }
    return MakeKeyBatch(keys, kBuckets);
  }();
  std::memcpy(many.data(), batch.keys.data(), many.size());
  request.mutable_rows()->set_table(1);
  request.mutable_rows()->set_shard(0);
  request.mutable_rows()->set_keys(many);
  refused(request, "asks for 4194312 bytes of rows: expected at most 4194304");
  CHECK((job.ReadByKey(1) == job.rows));
}

}  // namespace
}  // namespace capstan::server::job_snapshots_test
