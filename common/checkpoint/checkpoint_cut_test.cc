// The power is cut at every step of writing, publishing and removing checkpoints.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/testing/test_checkpoint.h"
#include "common/storage/testing/sim_disk.h"
#include "common/testing/status_matchers.h"

namespace capstan::checkpoint_cut_test {
namespace {

using testing::CheckTestCheckpoint;
using testing::WriteTestCheckpoint;
using Unsynced = SimDisk::Unsynced;

constexpr uint64_t kCheckpoints = 4;

// The newest one, and the one before.
std::vector<CheckpointId> Newest(uint64_t id, int keep) {
  if (keep == 1) return {CheckpointId(id)};
  return {CheckpointId(id - 1), CheckpointId(id)};
}

// Checkpoint 1 is there before. Returns the newest that was acknowledged.
uint64_t RunScript(SimDisk& disk) {
  uint64_t acknowledged = 1;
  for (uint64_t id = 2; id <= kCheckpoints; ++id) {
    if (!WriteTestCheckpoint(disk, "f", id).ok()) return acknowledged;
    acknowledged = id;
    if (!RemoveOthers(disk, "f", CheckpointId(0), Newest(id, id == 4 ? 1 : 2)).ok())
      return acknowledged;
  }
  return acknowledged;
}

// The checkpoint that is found after the cut is whole, and not older than the acknowledged one.
void CheckRecovery(SimDisk& disk, uint64_t acknowledged) {
  REQUIRE_OK_AND_ASSIGN(const FoundCheckpoint found, NewestComplete(disk, "f"));
  const uint64_t id = found.manifest.checkpoint_id();
  INFO("found " << found.path);
  REQUIRE(id >= acknowledged);
  REQUIRE(id <= acknowledged + 1);
  REQUIRE_OK(CheckTestCheckpoint(disk, found.path, found.manifest));
  // The folder is fit for use: the next checkpoint is written over what is left.
  REQUIRE_OK(WriteTestCheckpoint(disk, "f", id + 1));
  REQUIRE_OK(RemoveOthers(disk, "f", CheckpointId(0), Newest(id + 1, 1)));
  REQUIRE_OK_AND_ASSIGN(const FoundCheckpoint next, NewestComplete(disk, "f"));
  REQUIRE(next.manifest.checkpoint_id() == id + 1);
}

TEST_CASE("Checkpoints: a power cut at any step leaves a whole one", "[common][checkpoint]") {
  int64_t steps = 0;
  int64_t begin = 0;
  {
    SimDisk disk(1);
    REQUIRE_OK(WriteTestCheckpoint(disk, "f", 1));
    begin = disk.steps();
    REQUIRE(RunScript(disk) == kCheckpoints);
    steps = disk.steps();
  }
  int64_t cuts = 0;
  int64_t torn = 0;
  for (int64_t step = begin; step < steps; ++step) {
    for (const Unsynced how : {Unsynced::kLost, Unsynced::kTornAtByte, Unsynced::kTornAtSector,
                               Unsynced::kTornZeros, Unsynced::kAnySectors, Unsynced::kKept}) {
      const bool random = how != Unsynced::kLost && how != Unsynced::kKept;
      for (uint64_t seed = 0; seed < (random ? 20u : 1u); ++seed) {
        INFO("cut at step " << step << ", variant " << static_cast<int>(how) << ", seed " << seed);
        SimDisk disk(seed);
        REQUIRE_OK(WriteTestCheckpoint(disk, "f", 1));
        disk.CutAt(step);
        const uint64_t acknowledged = RunScript(disk);
        REQUIRE(disk.cut());
        disk.Crash(how);
        torn += disk.injected(SimDisk::Fault::kTornWrite);
        CheckRecovery(disk, acknowledged);
        ++cuts;
      }
    }
  }
  CHECK(cuts >= 5000);
  CHECK(torn > 100);
}

TEST_CASE("Checkpoints: any failing step leaves the newest acknowledged one",
          "[common][checkpoint]") {
  SimDisk probe(1);
  REQUIRE_OK(WriteTestCheckpoint(probe, "f", 1));
  const int64_t begin = probe.steps();
  RunScript(probe);
  for (int64_t step = begin; step < probe.steps(); ++step) {
    for (const SimDisk::Fault fault :
         {SimDisk::Fault::kDiskFull, SimDisk::Fault::kWriteError, SimDisk::Fault::kSyncError}) {
      INFO("step " << step << ", fault " << static_cast<int>(fault));
      SimDisk disk(7);
      REQUIRE_OK(WriteTestCheckpoint(disk, "f", 1));
      disk.FailAt(step, fault);
      const uint64_t acknowledged = RunScript(disk);
      disk.Crash(Unsynced::kLost);
      CheckRecovery(disk, acknowledged);
    }
  }
}

}  // namespace
}  // namespace capstan::checkpoint_cut_test
