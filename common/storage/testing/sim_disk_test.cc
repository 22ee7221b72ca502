#include "common/storage/testing/sim_disk.h"

#include <catch2/catch.hpp>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::sim_disk_test {
namespace {

using Fault = SimDisk::Fault;
using Unsynced = SimDisk::Unsynced;

std::string Contents(Disk& disk, const std::string& path) {
  const absl::StatusOr<std::string> bytes = disk.Read(path, 1 << 20);
  return bytes.ok() ? *bytes : std::string(bytes.status().message());
}

std::unique_ptr<WritableFile> Made(Disk& disk, const std::string& path) {
  absl::StatusOr<std::unique_ptr<WritableFile>> file = disk.Create(path);
  REQUIRE_OK(file);
  return std::move(*file);
}

TEST_CASE("SimDisk: a crash drops what was not synced", "[common][storage]") {
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("d"));
  const auto file = Made(disk, "d/a");
  REQUIRE_OK(file->Append("one"));
  REQUIRE_OK(file->Sync());
  SECTION("the bytes were synced, the name was not") {
    disk.Crash(Unsynced::kLost);
    CHECK_STATUS(disk.Read("d/a", 100), absl::StatusCode::kNotFound, "d/a");
    CHECK(disk.injected(Fault::kLostName) == 1);
  }
  SECTION("both were synced, later bytes were not") {
    REQUIRE_OK(disk.SyncFolder("d"));
    REQUIRE_OK(file->Append("two"));
    CHECK(Contents(disk, "d/a") == "onetwo");
    disk.Crash(Unsynced::kLost);
    CHECK(Contents(disk, "d/a") == "one");
    CHECK_STATUS(file->Append("x"), absl::StatusCode::kUnavailable, "before a crash");
  }
  SECTION("a process that dies loses nothing, but a power cut after it does") {
    REQUIRE_OK(disk.SyncFolder("d"));
    REQUIRE_OK(file->Append("two"));
    disk.KillProcess();
    CHECK(Contents(disk, "d/a") == "onetwo");
    CHECK_STATUS(file->Sync(), absl::StatusCode::kUnavailable, "before a crash");
    disk.Crash(Unsynced::kLost);
    CHECK(Contents(disk, "d/a") == "one");
  }
  SECTION("a rename that was not synced is undone as a whole") {
    const auto other = Made(disk, "d/b");
    REQUIRE_OK(other->Append("new"));
    REQUIRE_OK(other->Sync());
    REQUIRE_OK(disk.SyncFolder("d"));
    REQUIRE_OK(disk.Rename("d/b", "d/a"));
    CHECK(Contents(disk, "d/a") == "new");
    disk.Crash(Unsynced::kLost);
    CHECK(Contents(disk, "d/a") == "one");
    CHECK(Contents(disk, "d/b") == "new");
  }
}

TEST_CASE("SimDisk: a torn write keeps a prefix", "[common][storage]") {
  const std::string whole(4000, 'x');
  int partial = 0;
  for (const Unsynced how :
       {Unsynced::kTornAtByte, Unsynced::kTornAtSector, Unsynced::kTornZeros}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      SimDisk disk(seed);
      const auto file = Made(disk, "a");
      REQUIRE_OK(file->Append("head"));
      REQUIRE_OK(file->Sync());
      REQUIRE_OK(disk.SyncFolder("."));
      REQUIRE_OK(file->Append(whole));
      disk.Crash(how);
      const std::string bytes = Contents(disk, "a");
      REQUIRE(bytes.substr(0, 4) == "head");
      const size_t end = bytes.find_first_not_of('x', 4);
      if (end != std::string::npos) {
        CHECK(how == Unsynced::kTornZeros);
        CHECK(bytes.find_first_not_of('\0', end) == std::string::npos);
        CHECK(bytes.size() == 4004);
      } else if (how == Unsynced::kTornAtSector) {
        CHECK((bytes.size() % 512 == 0 || bytes.size() == 4 || bytes.size() == 4004));
      }
      partial += disk.injected(Fault::kTornWrite) == 1;
    }
  }
  CHECK(partial > 100);
}

TEST_CASE("SimDisk: a crash keeps any of the sectors that were not synced", "[common][storage]") {
  const std::string head(100, 'h');
  const std::string whole(6000, 'x');
  int cut_short = 0, holes = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimDisk disk(seed);
    const auto file = Made(disk, "a");
    REQUIRE_OK(file->Append(head));
    REQUIRE_OK(file->Sync());
    REQUIRE_OK(disk.SyncFolder("."));
    REQUIRE_OK(file->Append(whole));
    disk.Crash(Unsynced::kAnySectors);
    const std::string bytes = Contents(disk, "a");
    REQUIRE(bytes.substr(0, 100) == head);
    REQUIRE(bytes.find_first_not_of(std::string("x\0", 2), 100) == std::string::npos);
    // Where it changes between bytes and zeros a sector ends.
    for (size_t i = 101; i < bytes.size(); ++i) {
      if (bytes[i] != bytes[i - 1]) REQUIRE(i % 64 == 0);
    }
    const size_t last = bytes.find_last_of('x');
    const bool hole = last != std::string::npos && bytes.find('\0', 100) < last;
    REQUIRE(disk.injected(Fault::kLostSector) == (hole ? 1 : 0));
    holes += hole;
    cut_short += bytes.size() < 6100;
  }
  CHECK(holes > 70);
  CHECK(cut_short > 20);
}

TEST_CASE("SimDisk: faults come when they are told to", "[common][storage]") {
  SimDisk disk(7);
  const auto file = Made(disk, "a");  // Step 0.
  SECTION("disk full keeps a part") {
    disk.FailAt(1, Fault::kDiskFull);
    CHECK_STATUS(file->Append("abcdefgh"), absl::StatusCode::kResourceExhausted, "no space");
    CHECK(Contents(disk, "a") == std::string("abcdefgh").substr(0, Contents(disk, "a").size()));
    REQUIRE_OK(file->Append("more"));
  }
  SECTION("a capacity is never passed") {
    disk.SetCapacity(10);
    REQUIRE_OK(file->Append("0123456789"));
    CHECK_STATUS(file->Append("x"), absl::StatusCode::kResourceExhausted, "write a");
    CHECK(disk.bytes() == 10);
  }
  SECTION("a failed sync loses its bytes though the next one says OK") {
    disk.FailAt(2, Fault::kSyncError);
    REQUIRE_OK(file->Append("abc"));
    CHECK_STATUS(file->Sync(), absl::StatusCode::kUnavailable, "sync a");
    REQUIRE_OK(file->Sync());
    REQUIRE_OK(disk.SyncFolder("."));
    CHECK(Contents(disk, "a") == "abc");
    disk.Crash(Unsynced::kLost);
    CHECK(Contents(disk, "a") == std::string(3, '\0'));
  }
  SECTION("a lying sync makes nothing durable") {
    disk.FailAt(2, Fault::kLyingSync);
    REQUIRE_OK(file->Append("abc"));
    REQUIRE_OK(file->Sync());
    REQUIRE_OK(disk.SyncFolder("."));
    disk.Crash(Unsynced::kLost);
    CHECK(Contents(disk, "a").empty());
  }
  SECTION("a cut ends everything until the crash") {
    disk.CutAt(2);
    REQUIRE_OK(file->Append("abc"));
    CHECK_STATUS(file->Append("def"), absl::StatusCode::kUnavailable, "power");
    CHECK(disk.cut());
    CHECK_STATUS(file->Append("ghi"), absl::StatusCode::kUnavailable, "power");
    CHECK_STATUS(disk.List("."), absl::StatusCode::kUnavailable, "power");
    disk.Crash(Unsynced::kKept);
    CHECK(Contents(disk, "a") == "abcdef");
    CHECK(disk.steps() == 4);
  }
}

TEST_CASE("SimDisk: rates inject every kind of fault, the same for the same seed",
          "[common][storage]") {
  const auto run = [](uint64_t seed) {
    SimDisk disk(seed);
    SimDisk::Rates rates;
    rates.disk_full = rates.write_error = rates.read_error = 0.1;
    rates.sync_error = rates.lying_sync = rates.bit_flip_on_read = 0.1;
    disk.SetRates(rates);
    std::string trace;
    for (int i = 0; i < 200; ++i) {
      const auto file = disk.Create("a");
      if (!file.ok()) continue;
      trace += (*file)->Append("0123456789").ok() ? 'A' : 'a';
      trace += (*file)->Sync().ok() ? 'S' : 's';
      trace += disk.SyncFolder(".").ok() ? 'F' : 'f';
      trace += Contents(disk, "a");
    }
    for (const Fault fault : {Fault::kDiskFull, Fault::kWriteError, Fault::kReadError,
                              Fault::kSyncError, Fault::kLyingSync, Fault::kBitFlipOnRead}) {
      CHECK(disk.injected(fault) > 0);
    }
    return trace;
  };
  CHECK(run(3) == run(3));
  CHECK(run(3) != run(4));
}

TEST_CASE("SimDisk: a flipped bit stays", "[common][storage]") {
  SimDisk disk(1);
  CHECK_FALSE(disk.FlipRandomBit());
  REQUIRE_OK(Made(disk, "a")->Append("abc"));
  disk.FlipBit("a", 8);
  CHECK(Contents(disk, "a") == "acc");
  CHECK(disk.FlipRandomBit());
  CHECK(Contents(disk, "a") != "acc");
  CHECK(disk.injected(Fault::kBitFlipAtRest) == 2);
}

}  // namespace
}  // namespace capstan::sim_disk_test
