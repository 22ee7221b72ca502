#include "common/checkpoint/checkpoint_folder.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/checkpoint/testing/test_checkpoint.h"
#include "common/storage/testing/sim_disk.h"
#include "common/testing/status_matchers.h"

namespace capstan::checkpoint_folder_test {
namespace {

using testing::CheckTestCheckpoint;
using testing::WriteTestCheckpoint;

struct Fixture {
  Fixture() {
    for (const uint64_t id : {1, 2, 9, 10}) REQUIRE_OK(WriteTestCheckpoint(disk, "f", id));
  }
  std::vector<uint64_t> Ids() {
    REQUIRE_OK_AND_ASSIGN(const std::vector<CheckpointEntry> entries, ListCheckpoints(disk, "f"));
    std::vector<uint64_t> ids;
    for (const CheckpointEntry& entry : entries) ids.push_back(entry.id.value());
    return ids;
  }
  SimDisk disk{1};
};

TEST_CASE("CheckpointFolder: lists the newest first, incomplete ones as such",
          "[common][checkpoint]") {
  Fixture f;
  REQUIRE_OK(f.disk.MakeFolder("f/checkpoint-11"));
  REQUIRE_OK(f.disk.MakeFolder("f/checkpoint-x"));
  REQUIRE_OK(f.disk.MakeFolder("f/other"));
  f.disk.FlipBit("f/checkpoint-2/manifest.pb", 300);
  CHECK(f.Ids() == std::vector<uint64_t>{11, 10, 9, 2, 1});
  REQUIRE_OK_AND_ASSIGN(const std::vector<CheckpointEntry> entries, ListCheckpoints(f.disk, "f"));
  CHECK(absl::IsNotFound(entries[0].status));
  CHECK(entries[1].status.ok());
  CHECK(entries[1].path == "f/checkpoint-10");
  CHECK(entries[1].manifest.iteration() == 10);
  CHECK(absl::IsDataLoss(entries[3].status));
  REQUIRE_OK_AND_ASSIGN(const std::vector<CheckpointEntry> none, ListCheckpoints(f.disk, "none"));
  CHECK(none.empty());
}

TEST_CASE("CheckpointFolder: a manifest in the wrong folder is refused", "[common][checkpoint]") {
  Fixture f;
  REQUIRE_OK_AND_ASSIGN(const std::string bytes,
                        f.disk.Read("f/checkpoint-9/manifest.pb", 1 << 20));
  REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<WritableFile> file,
                        f.disk.Create("f/checkpoint-10/manifest.pb"));
  REQUIRE_OK(file->Append(bytes));
  REQUIRE_OK_AND_ASSIGN(const FoundCheckpoint found, NewestComplete(f.disk, "f"));
  CHECK(found.path == "f/checkpoint-9");
  CHECK_THAT(found.passed_over.at(0), Catch::Contains("it is that of checkpoint 9"));
}

TEST_CASE("CheckpointFolder: torn and damaged checkpoints are passed over, with the reason",
          "[common][checkpoint]") {
  Fixture f;
  REQUIRE_OK(f.disk.Remove("f/checkpoint-10/manifest.pb"));
  f.disk.FlipBit("f/checkpoint-9/table-0-shard-1.part", 1200);
  CHECK_STATUS(VerifyCheckpoint(f.disk, "f/checkpoint-9"), absl::StatusCode::kDataLoss,
               "f/checkpoint-9/table-0-shard-1.part: block 0 at byte 69");
  REQUIRE_OK_AND_ASSIGN(const FoundCheckpoint found, NewestComplete(f.disk, "f"));
  CHECK(found.path == "f/checkpoint-2");
  REQUIRE_OK(CheckTestCheckpoint(f.disk, found.path, found.manifest));
  REQUIRE(found.passed_over.size() == 2);
  CHECK(found.passed_over[0] == "f/checkpoint-10: it was never finished");
  CHECK_THAT(found.passed_over[1], Catch::StartsWith("f/checkpoint-9: f/checkpoint-9/table-0"));

  REQUIRE_OK(f.disk.Remove("f/checkpoint-2/table-1-shard-0.part"));
  f.disk.FlipBit("f/checkpoint-1/manifest.pb", 90);
  CHECK_STATUS(NewestComplete(f.disk, "f"), absl::StatusCode::kNotFound,
               "no complete checkpoint in f; passed over: f/checkpoint-10");
  CHECK_STATUS(NewestComplete(f.disk, "g"), absl::StatusCode::kNotFound, "in g");
}

TEST_CASE("CheckpointFolder: older ones go that are not to stay", "[common][checkpoint]") {
  Fixture f;
  REQUIRE_OK(f.disk.Remove("f/checkpoint-9/manifest.pb"));  // It is old, and was never finished.
  REQUIRE_OK(f.disk.MakeFolder("f/checkpoint-11"));         // It is being written.
  const std::vector<CheckpointId> two{CheckpointId(2), CheckpointId(10)};
  REQUIRE_OK_AND_ASSIGN(const std::vector<std::string> removed,
                        RemoveOthers(f.disk, "f", CheckpointId(0), two));
  CHECK(removed == std::vector<std::string>{"f/checkpoint-9", "f/checkpoint-1"});
  CHECK(f.Ids() == std::vector<uint64_t>{11, 10, 2});
  REQUIRE_OK_AND_ASSIGN(const std::vector<std::string> again,
                        RemoveOthers(f.disk, "f", CheckpointId(0), two));
  CHECK(again.empty());
  REQUIRE_OK(RemoveOthers(f.disk, "f", CheckpointId(0), {CheckpointId(10)}));
  CHECK(f.Ids() == std::vector<uint64_t>{11, 10});
  REQUIRE_OK(RemoveCheckpoint(f.disk, "f/checkpoint-77"));
}

TEST_CASE("CheckpointFolder: what was there before a job is not its own to remove",
          "[common][checkpoint]") {
  Fixture f;
  REQUIRE_OK(f.disk.MakeFolder("f/checkpoint-11"));  // Also what was never finished counts.
  REQUIRE_OK(f.disk.MakeFolder("f/checkpoint-18446744073709551615"));
  REQUIRE_OK_AND_ASSIGN(const CheckpointId newest, NewestId(f.disk, "f"));
  CHECK(newest == CheckpointId(11));
  REQUIRE_OK_AND_ASSIGN(const CheckpointId none, NewestId(f.disk, "g"));
  CHECK(none == CheckpointId(0));
  REQUIRE_OK_AND_ASSIGN(
      const std::vector<std::string> removed,
      RemoveOthers(f.disk, "f", CheckpointId(2), {CheckpointId(10), CheckpointId(11)}));
  CHECK(removed == std::vector<std::string>{"f/checkpoint-9"});
  CHECK(f.Ids() == std::vector<uint64_t>{11, 10, 2, 1});
}

TEST_CASE("CheckpointFolder: pinned ones stay, with what they rest on (issue 20)",
          "[common][checkpoint]") {
  Fixture f;
  REQUIRE_OK(WriteTestCheckpoint(f.disk, "f", 3));
  REQUIRE_OK(RemoveOthers(f.disk, "f", CheckpointId(0), {CheckpointId(10)},
                          {{CheckpointId(2), CheckpointId(3)}}));
  CHECK(f.Ids() == std::vector<uint64_t>{10, 3, 2});
}

TEST_CASE("CheckpointFolder: somebody's files in a folder of such a name stay (issue 20)",
          "[common][checkpoint]") {
  Fixture f;
  REQUIRE_OK(f.disk.MakeFolder("f/checkpoint-5"));  // Other trainers use such names.
  REQUIRE_OK(f.disk.Create("f/checkpoint-5/model.bin"));
  REQUIRE_OK(f.disk.Create("f/checkpoint-2/notes"));
  REQUIRE_OK(RemoveOthers(f.disk, "f", CheckpointId(0), {CheckpointId(10)}));
  CHECK(f.disk.List("f/checkpoint-5").value() == std::vector<std::string>{"model.bin"});
  CHECK(f.disk.List("f/checkpoint-2").value() == std::vector<std::string>{"notes"});
  CHECK(f.Ids() == std::vector<uint64_t>{10, 5, 2});  // It goes on behind one that stays.
}

TEST_CASE("CheckpointFolder: a bit that is wrong on one read only does no harm",
          "[common][checkpoint]") {
  Fixture f;
  SimDisk::Rates rates;
  rates.bit_flip_on_read = 0.02;
  f.disk.SetRates(rates);
  for (int i = 0; i < 50; ++i) {
    REQUIRE_OK_AND_ASSIGN(const FoundCheckpoint found, NewestComplete(f.disk, "f"));
    CHECK(found.path == "f/checkpoint-10");
  }
  CHECK(f.disk.injected(SimDisk::Fault::kBitFlipOnRead) > 0);
}

TEST_CASE("CheckpointFolder: a read that fails once does no harm (issue 20)",
          "[common][checkpoint]") {
  Fixture f;
  SimDisk::Rates rates;
  rates.read_error = 0.02;
  f.disk.SetRates(rates);
  for (int i = 0; i < 50; ++i) REQUIRE_OK(VerifyCheckpoint(f.disk, "f/checkpoint-10").status());
  CHECK(f.disk.injected(SimDisk::Fault::kReadError) > 0);
}

TEST_CASE("CheckpointFolder: what cannot be read is not removed", "[common][checkpoint]") {
  Fixture f;
  SimDisk::Rates rates;
  rates.read_error = 1;
  f.disk.SetRates(rates);
  CHECK_STATUS(RemoveOthers(f.disk, "f", CheckpointId(0), {CheckpointId(10)}),
               absl::StatusCode::kUnavailable, "f");
  f.disk.SetRates({});
  CHECK(f.Ids() == std::vector<uint64_t>{10, 9, 2, 1});
}

}  // namespace
}  // namespace capstan::checkpoint_folder_test
