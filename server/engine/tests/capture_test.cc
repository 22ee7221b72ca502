// Checkpoints of buckets: captured at one moment, read while the job goes on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/checkpoint/row_pieces.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "common/time/instant.h"
#include "server/engine/job/held_job.h"
#include "server/engine/testing/job_fixture.h"
#include "server/store/sparse/testing/memory_row_disks.h"

namespace capstan::server::capture_test {
namespace {

constexpr int32_t kBuckets = 2;
constexpr uint64_t kKeys = 40'000;

// A millisecond goes by from one look at it to the next; the next time `wait` in its place.
class TickingClock final : public Clock {
 public:
  Instant Now() const override {
    ++looks;
    const Instant now = now_;
    now_ = now_ + std::exchange(wait, absl::Milliseconds(1));
    return now;
  }

  mutable absl::Duration wait = absl::Milliseconds(1);
  mutable int looks = 0;

 private:
  mutable Instant now_;
};

struct CapturedJob {
  explicit CapturedJob(int64_t memory_bytes, const Clock* clock = nullptr) {
    TestJobOptions options;
    options.clock = clock;
    options.consistency = {.mode = ConsistencyMode::kAsp};
    options.optimizer = OptimizerKind::kAdam;
    options.buckets = kBuckets;
    options.memory_bytes = memory_bytes;
    options.disks = &disks;
    job = MakeTestJob(options);
    Push(1, kKeys);
  }

  void Push(uint64_t first, uint64_t last) {
    std::vector<uint64_t> keys;
    for (uint64_t key = first; key <= last; ++key) keys.push_back(key);
    v1::PushResponse response;
    absl::Status ended = absl::UnknownError("the push waits");
    job->calls().Push(Detach(RowPushOf(0, kBuckets, keys, -1.0f, ++sequence)), &response,
                      [&](const absl::Status& status) { ended = status; });
    REQUIRE_OK(ended);
  }
  // Captures the buckets. Ordered by shard.
  std::vector<CapturedShard> Capture(uint64_t id, uint64_t base = 0) {
    v1::CheckpointOrder order;
    order.set_checkpoint_id(id);
    order.set_base_id(base);
    REQUIRE_OK_AND_ASSIGN(std::vector<CapturedShard> captured, job->captures().Capture(order));
    std::erase_if(captured, [](const CapturedShard& each) { return each.rows == nullptr; });
    REQUIRE(captured.size() == kBuckets);
    return captured;
  }
  std::string Whole(const ShardKey& key) const {
    for (const HeldCopy& copy : job->Copies()) {
      if (copy.shard == key) return copy.snapshot.SerializeAsString();
    }
    return "";
  }
  int64_t MemoryHeld() const {
    for (const v1::HeldTable& table : job->Describe()) {
      if (table.table() == 1) return table.bytes();
    }
    return 0;
  }

  MemoryRowDisks disks;
  std::shared_ptr<HeldJob> job;
  uint64_t sequence = 0;
};

// All rows in one snapshot; `meanwhile` before each piece.
v1::ShardSnapshot ReadAll(const CapturedShard& captured,
                          const std::function<void()>& meanwhile = nullptr) {
  v1::ShardSnapshot snapshot = *captured.snapshot;
  while (true) {
    if (meanwhile) meanwhile();
    REQUIRE_OK_AND_ASSIGN(std::optional<v1::ShardSnapshot> piece, captured.rows->Next());
    if (!piece.has_value()) break;
    CHECK(piece->ByteSizeLong() < CapturedRows::kPieceBytes * 5 / 4);
    *snapshot.add_pieces() = *std::move(piece);
  }
  REQUIRE_OK(JoinRowPieces(&snapshot));
  return snapshot;
}

TEST_CASE("Capture: what is read piece by piece is the moment, whatever is pushed meanwhile",
          "[server]") {
  const int64_t limit = GENERATE(int64_t{0}, int64_t{1'600'000});  // Some payloads.
  CapturedJob job(limit);
  const std::vector<CapturedShard> captured = job.Capture(1);
  uint64_t first = 1;
  for (const CapturedShard& each : captured) {
    CHECK(each.snapshot->ByteSizeLong() < 1000);
    CHECK(each.snapshot->values().empty());
  }
  std::vector<std::string> whole;
  for (const CapturedShard& each : captured) whole.push_back(job.Whole(each.shard.key));
  for (size_t i = 0; i < captured.size(); ++i) {
    int pieces = 0;
    const v1::ShardSnapshot read = ReadAll(captured[i], [&] {
      job.Push(first, first + 3000);
      first += 3000;
      ++pieces;
    });
    CHECK(pieces > 3);
    CHECK((read.SerializeAsString() == whole[i]));
  }
  CHECK(job.Whole(captured[0].shard.key) != whole[0]);
}

TEST_CASE("Capture: who waits for a busy job reads for as long, at most 20 ms", "[server]") {
  TickingClock clock;
  CapturedJob job(0, &clock);
  job.Push(kKeys, 10 * kKeys);
  const CapturedShard captured = job.Capture(1)[0];
  const std::string whole = job.Whole(captured.shard.key);
  int64_t wait = 0;
  int64_t pieces = 0;
  std::tie(wait, pieces) = GENERATE(table<int64_t, int64_t>({{0, 1}, {3, 3}, {10'000, 20}}));
  clock.looks = 0;
  const v1::ShardSnapshot read = ReadAll(captured, [&, piece = 0]() mutable {
    if (piece++ == 0) clock.wait = absl::Milliseconds(wait);
    // It looks at the clock when it asks, when it begins, and after each piece.
    if (piece > 1 && piece <= pieces + 1) CHECK(clock.looks == 2 + pieces);
    if (piece == pieces + 1) job.Push(1, kKeys);
  });
  CHECK((read.SerializeAsString() == whole));
}

TEST_CASE("Capture: a turn that one bucket does not fill goes on with the next ones", "[server]") {
  TickingClock clock;
  CapturedJob job(0, &clock);
  const std::vector<CapturedShard> captured = job.Capture(1);
  const std::string second = job.Whole(captured[1].shard.key);
  SECTION("the next one is read, too") {
    clock.wait = absl::Seconds(10);
    ReadAll(captured[0]);
    clock.looks = 0;
    job.Push(1, kKeys);
    const v1::ShardSnapshot read = ReadAll(captured[1]);
    CHECK((read.SerializeAsString() == second));
    CHECK(clock.looks == 0);
  }
  SECTION("the next one has been read already") {
    const std::string first = job.Whole(captured[0].shard.key);
    CHECK((ReadAll(captured[1]).SerializeAsString() == second));
    clock.wait = absl::Seconds(10);
    CHECK((ReadAll(captured[0]).SerializeAsString() == first));
    REQUIRE_OK_AND_ASSIGN(const auto more, captured[1].rows->Next());
    CHECK_FALSE(more.has_value());
  }
  SECTION("the next one has left the server") {
    v1::RoutingTable without = TestRouting(2);
    AddBuckets(&without, 1);
    TakeRouting(*job.job, without);
    const std::string first = job.Whole(captured[0].shard.key);
    clock.wait = absl::Seconds(10);
    CHECK((ReadAll(captured[0]).SerializeAsString() == first));
    CHECK_STATUS(captured[1].rows->Next(), absl::StatusCode::kAborted, "is held here no more");
  }
}

TEST_CASE("Capture: a table with a limit stays within it while it is captured and read",
          "[server]") {
  CapturedJob job(2'400'000);  // The rows would take more.
  job.Push(1, 1000);           // The first push has made them all at once; now it is within it.
  const int64_t before = job.MemoryHeld();
  const std::vector<CapturedShard> captured = job.Capture(1);
  CHECK(job.MemoryHeld() <= before + 1000);
  int64_t most = 0;
  for (uint64_t first = 1; first <= 12'000; first += 1000) {
    job.Push(first, first + 999);
    most = std::max(most, job.MemoryHeld());
  }
  for (const CapturedShard& each : captured) {
    ReadAll(each, [&] { most = std::max(most, job.MemoryHeld()); });
  }
  // 60 bytes are kept for each of 12,000 rows. They would add more than a quarter, if they were not
  // kept in the place of the payloads.
  CHECK(most <= before * 9 / 8);
}

TEST_CASE("Capture: only what changed since the base is read", "[server]") {
  CapturedJob job(0);
  for (const CapturedShard& each : job.Capture(1)) ReadAll(each);
  job.Push(5, 8004);
  const std::vector<CapturedShard> delta = job.Capture(2, 1);
  job.Push(7000, kKeys);
  int64_t rows = 0;
  for (const CapturedShard& each : delta) {
    CHECK(each.snapshot->since().checkpoint_id() == 1);
    rows += static_cast<int64_t>(ReadAll(each).bucket().stamps().size() / sizeof(uint32_t));
  }
  CHECK(rows == 8000);
}

TEST_CASE("Capture: rows of a shard that has gone, or of a job, end by name", "[server]") {
  CapturedJob job(0);
  const std::vector<CapturedShard> captured = job.Capture(1);
  REQUIRE_OK(captured[0].rows->Next());
  SECTION("the shard is elsewhere now") {
    TakeRouting(*job.job, TestRouting(2));  // This routing lacks table 1.
    CHECK_STATUS(captured[0].rows->Next(), absl::StatusCode::kAborted,
                 "table 1 shard 0 is held here no more");
  }
  SECTION("the shard went and came") {
    TakeRouting(*job.job, TestRouting(2));
    v1::RoutingTable again = TestRouting(3);
    AddBuckets(&again, kBuckets);
    TakeRouting(*job.job, again);
    CHECK_STATUS(captured[0].rows->Next(), absl::StatusCode::kAborted,
                 "table 1 shard 0: the rows of that version are kept no more");
  }
  SECTION("the job is dropped") {
    job.job.reset();
    CHECK_STATUS(captured[0].rows->Next(), absl::StatusCode::kAborted, "the job is held here no");
  }
}

TEST_CASE("Capture: what is not read to its end is kept no longer than who would read it",
          "[server]") {
  CapturedJob job(0);
  const int64_t before = job.MemoryHeld();
  {
    const std::vector<CapturedShard> captured = job.Capture(1);
    job.Push(1, kKeys);
    CHECK(job.MemoryHeld() > before + static_cast<int64_t>(kKeys * kTestDim * sizeof(float)));
  }
  CHECK(job.MemoryHeld() == before);
}

TEST_CASE("Capture: a disk that fails ends the checkpoint, by name, and nothing else", "[server]") {
  CapturedJob job(1'600'000);
  const std::vector<CapturedShard> captured = job.Capture(1);
  job.disks.read_error = absl::UnavailableError("the disk does not answer");
  CHECK_STATUS(captured[0].rows->Next(), absl::StatusCode::kUnavailable, "does not answer");
  job.disks.read_error = absl::OkStatus();
  CHECK(job.job->failure().ok());
  job.Push(1, 100);
}

}  // namespace
}  // namespace capstan::server::capture_test
