#include "scheduler/core/checkpoints/checkpoints.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"

namespace capstan::scheduler::checkpoints_test {
namespace {

using State = Checkpoints::State;

const Instant kNow = Instant::FromOrigin(absl::Seconds(100));

JobPlan Plan() {
  JobPlan plan;
  plan.id = "job-1";
  plan.consistency.mode = ConsistencyMode::kBsp;
  plan.checkpoint_iterations = 10;
  plan.checkpoint_interval = absl::Seconds(30);
  plan.checkpoints_kept = 2;
  plan.checkpoint_folder = "/c";
  return plan;
}

// Returns a routing table: table 0 has two shards, on a and b.
Routing TwoServers() {
  std::vector<ServerRef> servers{{"a", "a:1", Incarnation(1)}, {"b", "b:1", Incarnation(2)}};
  const std::vector<ShardRange> shards{{{TableId(0), ShardId(0)}, {0, 50}},
                                       {{TableId(0), ShardId(1)}, {50, 80}}};
  return PlaceRanges("job-1", Generation(1), shards, std::move(servers), 0);
}

CheckpointReport Report(uint64_t id, CheckpointReport::State state,
                        std::vector<CheckpointPart> parts = {}) {
  return {CheckpointId(id), state, std::move(parts), "disk full"};
}

CheckpointPart Part(int shard, int64_t begin, int64_t end, int64_t version = 7) {
  return {.shard = {TableId(0), ShardId(shard)},
          .elements = {begin, end},
          .version = Version(version),
          .file = absl::StrCat("shard-", shard)};
}

struct Fixture {
  Fixture() {
    checkpoints.clock().Start(0, kNow);
    checkpoints.Begin(TwoServers(), {.iteration = Iteration(7)}, 7, kNow);
  }
  void Captured(const NodeId& server) {
    checkpoints.OnReport(server, Report(1, CheckpointReport::State::kCaptured), kNow);
  }
  void Written(const NodeId& server, const CheckpointPart& part) {
    checkpoints.OnReport(server, Report(1, CheckpointReport::State::kWritten, {part}), kNow);
  }
  std::string WhyAbandoned() {
    CHECK(checkpoints.state() == State::kIdle);
    const std::vector<CheckpointEnded> ended = checkpoints.TakeEnds().checkpoints;
    return ended.size() == 1 ? ended[0].why : absl::StrCat(ended.size(), " ended");
  }
  Checkpoints checkpoints{Plan()};
};

TEST_CASE("Checkpoints: one is due after so many steps, after so long, or when asked for",
          "[scheduler][core]") {
  Checkpoints checkpoints(Plan());
  checkpoints.clock().Start(100, kNow);
  CHECK(checkpoints.clock().DueSteps() == 110);
  CHECK_FALSE(checkpoints.IsDue(109, kNow));
  CHECK(checkpoints.IsDue(110, kNow));
  CHECK(checkpoints.clock().DueAt() == kNow + absl::Seconds(30));
  CHECK(checkpoints.IsDue(100, kNow + absl::Seconds(30)));
  checkpoints.clock().Ask();
  CHECK(checkpoints.IsDue(100, kNow));
  checkpoints.Begin(TwoServers(), {}, 100, kNow);
  CHECK_FALSE(checkpoints.IsDue(1000, kNow));  // The present one has not ended.
  checkpoints.Abandon("a reason");
  CHECK_FALSE(checkpoints.IsDue(100, kNow));  // It was taken.

  JobPlan plan = Plan();
  plan.checkpoint_iterations = 0;
  plan.checkpoint_interval = absl::ZeroDuration();
  Checkpoints never(plan);
  never.clock().Start(0, kNow);
  CHECK_FALSE(never.IsDue(1'000'000, kNow + absl::Hours(1000)));
  CHECK(never.clock().DueAt() == Instant::InfiniteFuture());
}

TEST_CASE("Checkpoints: all capture, all write, the manifest is written: complete",
          "[scheduler][core]") {
  Fixture f;
  CHECK(
      f.checkpoints.order() ==
      (CheckpointOrder{.id = CheckpointId(1), .folder = "/c/checkpoint-1", .version = Version(7)}));
  CHECK(f.checkpoints.Awaited() == "a");
  f.Captured("a");
  f.Captured("a");
  CHECK(f.checkpoints.state() == State::kCapturing);
  f.Captured("b");
  CHECK(f.checkpoints.state() != State::kCapturing);
  f.Written("b", Part(1, 50, 80));
  CHECK(f.checkpoints.state() != State::kPublishing);
  CHECK(f.checkpoints.Awaited() == "a");
  f.Written("a", Part(0, 0, 50));
  REQUIRE(f.checkpoints.state() == State::kPublishing);
  const CheckpointPublish publish = *f.checkpoints.TakePublish();
  CHECK_FALSE(f.checkpoints.TakePublish());
  CHECK(publish.folder == "/c/checkpoint-1");
  REQUIRE(publish.writers.size() == 2);
  CHECK(publish.writers[0].node == "a");
  CHECK(publish.writers[1].node == "b");
  CHECK(f.checkpoints.complete().Removal().staying.empty());  // Nothing is complete.
  CHECK(publish.at.iteration == Iteration(7));
  REQUIRE(publish.parts.size() == 2);
  CHECK(publish.parts[0].file == "shard-0");
  f.checkpoints.Published(CheckpointId(9), absl::OkStatus());  // This id is another checkpoint's.
  CHECK(f.checkpoints.complete().all().empty());
  f.checkpoints.Published(CheckpointId(1), absl::OkStatus());
  REQUIRE(f.checkpoints.complete().all().size() == 1);
  CHECK(f.WhyAbandoned() == "");
  CHECK(f.checkpoints.order().id == CheckpointId(0));
}

TEST_CASE("Checkpoints: only the newest are remembered", "[scheduler][core]") {
  Checkpoints checkpoints(Plan());
  for (uint64_t id = 1; id <= 3; ++id) {
    checkpoints.Begin(Routing{}, {}, 0, kNow);  // There are no shards to write.
    REQUIRE(checkpoints.state() == State::kPublishing);
    checkpoints.Published(CheckpointId(id), absl::OkStatus());
  }
  REQUIRE(checkpoints.complete().all().size() == 2);
  CHECK(checkpoints.complete().all()[0].folder == "/c/checkpoint-2");
  checkpoints.complete().Forget(checkpoints.complete().all().back().id);
  CHECK(checkpoints.complete().all().back().folder == "/c/checkpoint-2");
}

TEST_CASE("Checkpoints: what the job's folder held before is neither written over nor removed",
          "[scheduler][core]") {
  JobPlan plan = Plan();
  plan.checkpoint_floor = CheckpointId(6);
  Checkpoints checkpoints(plan);
  checkpoints.Begin(Routing{}, {}, 0, kNow);
  REQUIRE(checkpoints.state() == State::kPublishing);
  const CheckpointPublish publish = *checkpoints.TakePublish();
  CHECK(publish.id == CheckpointId(7));
  CHECK(publish.folder == "/c/checkpoint-7");
  CHECK(checkpoints.complete().Removal().floor == CheckpointId(6));
  checkpoints.Published(CheckpointId(7), absl::OkStatus());
  // It cannot be read; its id is not used again.
  checkpoints.complete().Forget(checkpoints.complete().all().back().id);
  checkpoints.Begin(Routing{}, {}, 0, kNow);
  CHECK(checkpoints.last_begun() == CheckpointId(8));
}

// A job with a sparse table of one bucket, on a.
class Chained {
 public:
  Chained() : checkpoints(SparsePlan()) {}

  static JobPlan SparsePlan() {
    JobPlan plan = Plan();
    plan.tables = {TableSize(1, true)};
    return plan;
  }
  CheckpointId Begin() {
    checkpoints.Begin(PlaceRanges("job-1", Generation(1), {{{TableId(0), ShardId(0)}, {0, 1}}},
                                  {{"a", "a:1", Incarnation(1)}}, 0),
                      {.iteration = Iteration(7)}, 7, kNow);
    return checkpoints.order().base;
  }
  // Writes the part on the ordered base, or a complete part if `whole`.
  void Write(int64_t bytes, bool whole = false) {
    CheckpointPart part = Part(0, 0, 1);
    part.bytes = bytes;
    if (!whole) part.base = checkpoints.order().base;
    checkpoints.OnReport("a", Report(Id(), CheckpointReport::State::kWritten, {part}), kNow);
  }
  void Complete() { checkpoints.Published(checkpoints.last_begun(), absl::OkStatus()); }
  void Take(int64_t bytes, bool whole = false) {
    Begin();
    Write(bytes, whole);
    Complete();
  }
  std::vector<uint64_t> Kept() const {
    std::vector<uint64_t> ids;
    for (const RestoreFrom& one : checkpoints.complete().all()) ids.push_back(one.id.value());
    return ids;
  }
  uint64_t Id() const { return checkpoints.last_begun().value(); }

  Checkpoints checkpoints;
};

TEST_CASE("Checkpoints: of sparse tables the next one is of what changed, until a chain is full",
          "[scheduler][core]") {
  Chained f;
  CHECK(f.Begin() == CheckpointId(0));
  f.Write(1000);
  f.Complete();
  for (uint64_t id = 2; id <= CompleteCheckpoints::kChainMax; ++id) {
    CHECK(f.Begin() == CheckpointId(id - 1));
    f.Write(10);
    f.Complete();
    CHECK(f.checkpoints.complete().Removal().staying.size() == id);
    CHECK(f.checkpoints.complete().all().back().rests_on == CheckpointId(1));
  }
  CHECK(f.Begin() == CheckpointId(0));
  f.Write(1000);
  f.Complete();
  CHECK(f.Kept() == std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  // The next checkpoint is complete, so the chain before the last one is not needed.
  for (int i = 1; i < CompleteCheckpoints::kChainMax; ++i) f.Take(10);
  f.Take(1000);
  CHECK(f.Kept() == std::vector<uint64_t>{9, 10, 11, 12, 13, 14, 15, 16, 17});
}

TEST_CASE("Checkpoints: a chain ends when its increments weigh half of its first one",
          "[scheduler][core]") {
  Chained f;
  f.Take(1000);
  f.Take(400);
  f.Take(100);
  CHECK(f.Begin() == CheckpointId(3));
  f.Write(1);
  f.Complete();
  CHECK(f.Begin() == CheckpointId(0));
}

TEST_CASE("Checkpoints: one whose servers wrote all begins a chain", "[scheduler][core]") {
  Chained f;
  f.Take(1000);
  f.Take(10);
  f.Take(900, /*whole=*/true);
  CHECK(f.checkpoints.complete().all().back().rests_on == CheckpointId(3));
  CHECK(f.Kept() == std::vector<uint64_t>{1, 2, 3});
  f.Take(1000, /*whole=*/true);
  CHECK(f.Kept() == std::vector<uint64_t>{3, 4});
}

TEST_CASE("Checkpoints: what is wrong with a chain ends it", "[scheduler][core]") {
  Chained f;
  f.Take(1000);
  f.Take(10);
  SECTION("one that is given up does not: the base stays") {
    f.Begin();
    f.checkpoints.Abandon("enough");
    CHECK(f.Begin() == CheckpointId(2));
  }
  SECTION("its manifest cannot be written") {
    f.Begin();
    f.Write(10);
    f.checkpoints.Published(CheckpointId(3), absl::DataLossError("the base is damaged"));
    CHECK(f.Begin() == CheckpointId(0));
  }
  SECTION("the newest cannot be read") {
    f.checkpoints.complete().Forget(f.checkpoints.complete().all().back().id);
    CHECK(f.Begin() == CheckpointId(0));
    f.Write(1000);
    // No checkpoint is removed before the new one is complete.
    CHECK(f.checkpoints.complete().Removal().staying == std::vector<CheckpointId>{CheckpointId(1)});
    f.Complete();
    CHECK(f.checkpoints.complete().Removal().staying ==
          std::vector<CheckpointId>{CheckpointId(1), CheckpointId(3)});
  }
  SECTION("a part rests on another one than was ordered") {
    f.Begin();
    CheckpointPart part = Part(0, 0, 1);
    part.base = CheckpointId(1);
    f.checkpoints.OnReport("a", Report(3, CheckpointReport::State::kWritten, {part}), kNow);
    const std::vector<CheckpointEnded> ended = f.checkpoints.TakeEnds().checkpoints;
    CHECK(ended.back().why == "a: table 0 shard 0 rests on checkpoint 1, expected 2 or all of it");
  }
}

TEST_CASE("Checkpoints: dense tables and jobs that do not want it have all of everything",
          "[scheduler][core]") {
  JobPlan plan = Chained::SparsePlan();
  SECTION("dense") { plan.tables = {TableSize(1)}; }
  SECTION("not wanted") { plan.checkpoints_incremental = false; }
  Checkpoints checkpoints(plan);
  for (uint64_t id = 1; id <= 2; ++id) {
    checkpoints.Begin(Routing{}, {}, 0, kNow);
    CHECK(checkpoints.TakePublish()->base == CheckpointId(0));
    checkpoints.Published(CheckpointId(id), absl::OkStatus());
  }
}

TEST_CASE("Checkpoints: what goes wrong gives the present one up, and says why",
          "[scheduler][core]") {
  Fixture f;
  SECTION("a server fails") {
    f.checkpoints.OnReport("b", Report(1, CheckpointReport::State::kFailed), kNow);
    CHECK(f.WhyAbandoned() == "b: disk full");
  }
  SECTION("a server dies before it has written") {
    f.Captured("a");
    f.Captured("b");
    f.checkpoints.OnServerDied("b");
    CHECK(f.WhyAbandoned() == "b is gone");
  }
  SECTION("a shard gets another primary before it is written") {
    Routing routing = TwoServers();
    routing.shards[1].term = Term(2);
    f.checkpoints.OnRouting(routing);
    CHECK(f.WhyAbandoned() == "table 0 shard 1 has left b");
  }
  SECTION("a server does not copy in time") {
    f.Captured("a");
    CHECK(f.checkpoints.Limit() == kNow + absl::Seconds(60));
    f.checkpoints.Tick(f.checkpoints.Limit());
    CHECK(f.WhyAbandoned() == "b has not copied its part in time");
  }
  SECTION("a part is missing") {
    f.checkpoints.OnReport("a", Report(1, CheckpointReport::State::kWritten), kNow);
    CHECK(f.WhyAbandoned() == "a: no part of table 0 shard 0");
  }
  SECTION("a part is of another range") {
    f.Written("a", Part(0, 0, 40));
    CHECK(f.WhyAbandoned() == "a: table 0 shard 0 has elements [0, 40), expected [0, 50)");
  }
  SECTION("a shard was not at the iteration") {
    f.Written("a", Part(0, 0, 50, 8));
    CHECK(f.WhyAbandoned() == "a: table 0 shard 0 is at version 8, expected that of iteration 7");
  }
  SECTION("the manifest cannot be written") {
    f.Written("a", Part(0, 0, 50));
    f.Written("b", Part(1, 50, 80));
    f.checkpoints.Published(CheckpointId(1), absl::UnavailableError("no disk"));
    CHECK(f.WhyAbandoned() == "no disk");
    CHECK(f.checkpoints.complete().all().empty());
  }
}

TEST_CASE("Checkpoints: until all have written, who has may not die, nor its shards move",
          "[scheduler][core]") {
  // The server's next incarnation, or the next primary, would overwrite its parts.
  Fixture f;
  Routing moved = TwoServers();
  moved.shards[1].term = Term(2);
  f.Written("b", Part(1, 50, 80));
  CHECK(f.checkpoints.order().id == CheckpointId(1));
  SECTION("it dies") {
    f.checkpoints.OnServerDied("b");
    CHECK(f.WhyAbandoned() == "b is gone");
  }
  SECTION("a shard moves") {
    f.checkpoints.OnRouting(moved);
    CHECK(f.WhyAbandoned() == "table 0 shard 1 has left b");
  }
  SECTION("then it does not matter, and nobody is told to write any more") {
    f.Written("a", Part(0, 0, 50));
    f.checkpoints.OnServerDied("b");
    f.checkpoints.OnRouting(moved);
    CHECK(f.checkpoints.state() == State::kPublishing);
    CHECK(f.checkpoints.order().id == CheckpointId(0));
  }
}

TEST_CASE("Checkpoints: reports of strangers, of other checkpoints and late ones have no effect",
          "[scheduler][core]") {
  Fixture f;
  f.checkpoints.OnReport("c", Report(1, CheckpointReport::State::kFailed), kNow);
  f.checkpoints.OnReport("a", Report(2, CheckpointReport::State::kFailed), kNow);
  CHECK(f.checkpoints.state() == State::kCapturing);
  f.Written("a", Part(0, 0, 50));
  f.checkpoints.OnReport("a", Report(1, CheckpointReport::State::kFailed), kNow);
  f.Captured("a");
  CHECK(f.checkpoints.Awaited() == "b");
  f.checkpoints.Abandon("enough");
  f.checkpoints.Abandon("twice");
  CHECK(f.WhyAbandoned() == "enough");
  f.Written("b", Part(1, 50, 80));
  CHECK(f.checkpoints.state() == State::kIdle);
}

// A job without periodic checkpoints: only requested ones are due.
struct Asked {
  Asked() { checkpoints.clock().Start(0, kNow); }
  void Captured(const NodeId& server) {
    checkpoints.OnReport(server, Report(1, CheckpointReport::State::kCaptured), kNow);
  }
  void Written(const NodeId& server, const CheckpointPart& part) {
    checkpoints.OnReport(server, Report(1, CheckpointReport::State::kWritten, {part}), kNow);
  }
  void Begin() { checkpoints.Begin(TwoServers(), {.iteration = Iteration(7)}, 7, kNow); }

  Checkpoints checkpoints{Plan()};
};

TEST_CASE("Checkpoints: a snapshot is there once all servers keep it, and is not written",
          "[scheduler][core]") {
  Asked f;
  CHECK_FALSE(f.checkpoints.IsDue(7, kNow));
  REQUIRE_OK(f.checkpoints.clock().AskSnapshot(11));
  REQUIRE_OK(f.checkpoints.clock().AskSnapshot(12));
  REQUIRE_OK(f.checkpoints.clock().AskSnapshot(11));
  CHECK(f.checkpoints.IsDue(7, kNow));
  f.Begin();
  CHECK(f.checkpoints.order() ==
        CheckpointOrder{CheckpointId(1), "", CheckpointId(0), {11, 12}, Version(7)});
  f.Captured("a");
  CHECK(f.checkpoints.TakeEnds().snapshots.empty());
  f.Captured("b");
  CHECK(f.checkpoints.state() == State::kIdle);
  const auto [ended, taken] = f.checkpoints.TakeEnds();
  REQUIRE(taken.size() == 1);
  CHECK(taken[0].id == CheckpointId(1));
  CHECK(taken[0].iteration == 7);
  CHECK(taken[0].why == "");
  CHECK(ended.empty());
  CHECK(f.checkpoints.order().id == CheckpointId(0));
  CHECK_FALSE(f.checkpoints.IsDue(7, kNow));      // All readers have the snapshot.
  CHECK(f.checkpoints.clock().DueSteps() == 10);  // The checkpoints' clock goes on.
  CHECK(f.checkpoints.clock().DueAt() == kNow + absl::Seconds(30));
}

TEST_CASE("Checkpoints: a moment may be both, and each goes its way", "[scheduler][core]") {
  Asked f;
  REQUIRE_OK(f.checkpoints.clock().AskSnapshot(11));
  f.checkpoints.clock().Ask();
  f.Begin();
  CHECK(f.checkpoints.order() ==
        CheckpointOrder{CheckpointId(1), "/c/checkpoint-1", CheckpointId(0), {11}, Version(7)});
  SECTION("one server has no room for readers") {
    CheckpointReport report = Report(1, CheckpointReport::State::kCaptured);
    report.not_kept = "no room";
    f.checkpoints.OnReport("a", report, kNow);
    f.Captured("b");
    CHECK(f.checkpoints.TakeEnds().snapshots.at(0).why == "a: no room");
  }
  SECTION("one has written before another has captured") {
    f.Written("a", Part(0, 0, 50));
    CHECK(f.checkpoints.TakeEnds().snapshots.empty());
    f.Captured("b");
    CHECK(f.checkpoints.TakeEnds().snapshots.at(0).why == "");
  }
  CHECK(f.checkpoints.state() != State::kIdle);
  f.Written("a", Part(0, 0, 50));
  f.Written("b", Part(1, 50, 80));
  REQUIRE(f.checkpoints.state() == State::kPublishing);
  f.checkpoints.Published(CheckpointId(1), absl::OkStatus());
  const auto [ended, taken] = f.checkpoints.TakeEnds();
  CHECK(ended.size() == 1);
  CHECK(taken.empty());
}

TEST_CASE("Checkpoints: a snapshot that cannot be taken is told, once", "[scheduler][core]") {
  Asked f;
  REQUIRE_OK(f.checkpoints.clock().AskSnapshot(11));
  f.Begin();
  f.Captured("a");
  std::string why;
  SECTION("a server died") {
    f.checkpoints.OnServerDied("b");
    why = "b is gone";
  }
  SECTION("a server took too long") {
    f.checkpoints.Tick(kNow + absl::Seconds(60));
    why = "b has not copied its part in time";
  }
  SECTION("the job goes back") {
    f.checkpoints.Abandon("its shards are lost");
    why = "its shards are lost";
  }
  CHECK(f.checkpoints.state() == State::kIdle);
  const auto [ended, taken] = f.checkpoints.TakeEnds();
  CHECK(ended.empty());  // There was no checkpoint.
  REQUIRE(taken.size() == 1);
  CHECK(taken[0].why == why);
  f.Captured("b");
  f.checkpoints.Abandon("again");
  CHECK(f.checkpoints.TakeEnds().snapshots.empty());
}

TEST_CASE("Checkpoints: as many readers as there may be", "[scheduler][core]") {
  Asked f;
  for (uint64_t reader = 0; reader < CheckpointClock::kReadersMax; ++reader) {
    REQUIRE_OK(f.checkpoints.clock().AskSnapshot(reader));
  }
  CHECK_STATUS(f.checkpoints.clock().AskSnapshot(5000), absl::StatusCode::kResourceExhausted,
               "1024 readers wait for the next snapshot of job-1");
}

}  // namespace
}  // namespace capstan::scheduler::checkpoints_test
