// The power is cut at every step of a log's lifetime, and again while it recovers.
#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <string>

#include "common/storage/testing/sim_disk.h"
#include "common/testing/status_matchers.h"
#include "server/log/job_log.h"
#include "server/log/testing/log_fixture.h"

namespace capstan::server::job_log_cut_test {
namespace {

using testing::LogFixture;
using testing::LogState;
using testing::ReadState;
using Unsynced = SimDisk::Unsynced;

constexpr JobLog::Options kOptions = {.segment_bytes_max = 1200, .lent_bytes_min = 60};
constexpr int kSteps = 170;

absl::StatusOr<std::unique_ptr<JobLog>> Open(SimDisk& disk) {
  return JobLog::Open(&disk, "log/job-1", kOptions);
}

// The result of a run of the fixture.
struct Run {
  int committed = 0;
  int tried = 0;
};

Run RunFixture(SimDisk& disk, const LogFixture& fixture) {
  Run run;
  const absl::StatusOr<std::unique_ptr<JobLog>> log = Open(disk);
  if (log.ok()) run.committed = fixture.Run(**log, &run.tried);
  return run;
}

// Whether the state is that after the committed steps, or after some more of those that were tried.
bool IsPrefix(const LogState& state, const LogFixture& fixture, const Run& run) {
  for (int i = run.committed; i <= run.tried; ++i) {
    if (state == fixture.states()[static_cast<size_t>(i)]) return true;
  }
  return false;
}

// The same of each shard by itself, which is what is promised. They may differ in how far they got
// where a recovery read what was never synced, and had moved on a part of it when the power went.
bool IsPrefixOfEachShard(const LogState& state, const LogFixture& fixture, const Run& run) {
  std::set<ShardKey> shards;
  for (int i = run.committed; i <= run.tried; ++i) {
    for (const auto& [shard, text] : fixture.states()[static_cast<size_t>(i)]) shards.insert(shard);
  }
  for (const auto& [shard, text] : state) shards.insert(shard);
  const auto text_in = [](const LogState& of, const ShardKey& shard) {
    const auto entry = of.find(shard);
    return entry == of.end() ? std::string() : entry->second;
  };
  for (const ShardKey& shard : shards) {
    bool found = false;
    for (int i = run.committed; i <= run.tried && !found; ++i) {
      found = text_in(state, shard) == text_in(fixture.states()[static_cast<size_t>(i)], shard);
    }
    if (!found) return false;
  }
  return true;
}

void CheckRecovery(SimDisk& disk, const LogFixture& fixture, const Run& run,
                   bool check(const LogState&, const LogFixture&, const Run&) = IsPrefix) {
  REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<JobLog> log, Open(disk));
  REQUIRE_OK_AND_ASSIGN(const LogState state, ReadState(*log));
  INFO("committed " << run.committed << ", tried " << run.tried);
  REQUIRE(check(state, fixture, run));
  // It goes on from there, and what was recovered stays.
  const ShardKey fresh{TableId(7), ShardId(7)};
  const v1::ShardSnapshot snapshot = testing::FixtureSnapshot(0, 1, 50);
  log->Begin(fresh, Term(1), snapshot);
  REQUIRE_OK(log->Commit());
  disk.Crash(Unsynced::kLost);
  REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<JobLog> again, Open(disk));
  REQUIRE_OK_AND_ASSIGN(LogState after, ReadState(*again));
  REQUIRE(after.erase(fresh) == 1);
  REQUIRE(after == state);
}

struct Variant {
  Unsynced how;
  int seeds;
};
constexpr Variant kVariants[] = {{Unsynced::kLost, 1},        {Unsynced::kKept, 1},
                                 {Unsynced::kTornAtByte, 12}, {Unsynced::kTornAtSector, 3},
                                 {Unsynced::kTornZeros, 12},  {Unsynced::kAnySectors, 12}};

TEST_CASE("JobLog: a power cut at any step loses nothing that was committed", "[server][storage]") {
  const LogFixture fixture(3, kSteps);
  SimDisk whole(1);
  REQUIRE(RunFixture(whole, fixture).committed == kSteps);
  const int64_t steps = whole.steps();
  int64_t cuts = 0;
  int64_t torn = 0;
  for (int64_t step = 0; step < steps; ++step) {
    for (const Variant& variant : kVariants) {
      for (int seed = 0; seed < variant.seeds; ++seed) {
        INFO("cut at step " << step << ", variant " << static_cast<int>(variant.how) << ", seed "
                            << seed);
        SimDisk disk(static_cast<uint64_t>(seed));
        disk.CutAt(step);
        const Run run = RunFixture(disk, fixture);
        REQUIRE(disk.cut());
        disk.Crash(variant.how);
        torn += disk.injected(SimDisk::Fault::kTornWrite);
        CheckRecovery(disk, fixture, run);
        ++cuts;
      }
    }
  }
  INFO(cuts << " cut points over " << steps << " steps, " << torn << " torn files");
  CHECK(cuts >= 5000);
  CHECK(torn > 500);
}

TEST_CASE("JobLog: a second cut, while it recovers from the first, loses nothing either",
          "[server][storage]") {
  const LogFixture fixture(4, kSteps);
  SimDisk whole(1);
  RunFixture(whole, fixture);
  int64_t cuts = 0;
  for (int64_t step = 3; step < whole.steps(); step += 3) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      // First the machine, or the process alone; then the machine.
      const bool process = seed % 4 != 0;
      bool recovered = false;
      for (int64_t second = 0; !recovered; ++second) {
        INFO("cut at step " << step << ", then at " << second << " of the recovery, seed " << seed);
        SimDisk disk(seed);
        disk.CutAt(step);
        const Run run = RunFixture(disk, fixture);
        if (process) {
          disk.KillProcess();
        } else {
          disk.Crash(Unsynced::kTornAtByte);
        }
        disk.CutAt(disk.steps() + second);
        recovered = Open(disk).ok();
        constexpr Unsynced kSecond[] = {Unsynced::kTornZeros, Unsynced::kTornAtByte,
                                        Unsynced::kAnySectors};
        disk.Crash(kSecond[seed / 4]);
        CheckRecovery(disk, fixture, run, IsPrefixOfEachShard);
        ++cuts;
      }
    }
  }
  INFO(cuts << " cut points");
  CHECK(cuts >= 2000);
}

TEST_CASE("JobLog: any failing step leaves what was committed", "[server][storage]") {
  const LogFixture fixture(5, kSteps);
  SimDisk whole(1);
  RunFixture(whole, fixture);
  int failed = 0;
  for (int64_t step = 0; step < whole.steps(); ++step) {
    for (const SimDisk::Fault fault :
         {SimDisk::Fault::kDiskFull, SimDisk::Fault::kWriteError, SimDisk::Fault::kSyncError}) {
      for (const bool power : {false, true}) {
        INFO("step " << step << ", fault " << static_cast<int>(fault) << ", power cut " << power);
        SimDisk disk(7);
        disk.FailAt(step, fault);
        const Run run = RunFixture(disk, fixture);
        failed += run.committed < kSteps;
        if (power) {
          disk.Crash(Unsynced::kTornAtByte);
        } else {
          disk.KillProcess();
        }
        CheckRecovery(disk, fixture, run);
      }
    }
  }
  CHECK(failed > 400);
}

}  // namespace
}  // namespace capstan::server::job_log_cut_test
