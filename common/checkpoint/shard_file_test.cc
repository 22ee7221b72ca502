#include "common/checkpoint/shard_file.h"

#include <catch2/catch.hpp>
#include <string>

#include "common/checkpoint/test_checkpoint.h"
#include "common/storage/posix_disk.h"
#include "common/storage/sim_disk.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan {
namespace {

using testing::MakeSnapshot;

const ShardKey kKey{TableId(1), ShardId(2)};

v1::CheckpointPart Write(Disk& disk, const v1::ShardSnapshot& snapshot) {
  REQUIRE_OK_AND_ASSIGN(
      const v1::CheckpointPart part,
      WriteShardFile(disk, "c", "job-1", kKey, {100, 100 + snapshot.elements()}, snapshot));
  return part;
}

TEST_CASE("ShardFile: what was written is read, for sizes around the blocks",
          "[common][checkpoint]") {
  // Values and one state slot: 8 bytes an element, and some for the rest.
  for (const int64_t elements : {int64_t{1}, kShardFileBlockBytes / 8 - 10,
                                 kShardFileBlockBytes / 8, kShardFileBlockBytes / 2 + 1}) {
    SimDisk disk(1);
    REQUIRE_OK(disk.MakeFolder("c"));
    const v1::ShardSnapshot snapshot = MakeSnapshot(7, elements, 42);
    const v1::CheckpointPart part = Write(disk, snapshot);
    CHECK(part.file() == "table-1-shard-2.part");
    CHECK(part.version() == 42);
    CHECK(part.element_begin() == 100);
    CHECK(part.element_end() == 100 + elements);
    CHECK(part.bytes() == disk.bytes());
    disk.Crash(SimDisk::Unsynced::kLost);
    REQUIRE_OK_AND_ASSIGN(const v1::ShardSnapshot read, ReadShardFile(disk, "c", "job-1", part));
    CHECK(read.SerializeAsString() == snapshot.SerializeAsString());
  }
}

TEST_CASE("ShardFile: the real disk holds it as well", "[common][checkpoint]") {
  PosixDisk disk;
  const std::string folder = testing::TestPath("checkpoint-1");
  REQUIRE_OK(disk.MakeFolder(folder));
  const v1::ShardSnapshot snapshot = MakeSnapshot(7, 300'000, 42);
  REQUIRE_OK_AND_ASSIGN(const v1::CheckpointPart part,
                        WriteShardFile(disk, folder, "j", kKey, {0, 300'000}, snapshot));
  REQUIRE_OK_AND_ASSIGN(const v1::ShardSnapshot read, ReadShardFile(disk, folder, "j", part));
  CHECK(read.values() == snapshot.values());
}

TEST_CASE("ShardFile: any flipped bit is found and named", "[common][checkpoint]") {
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("c"));
  const v1::CheckpointPart part = Write(disk, MakeSnapshot(7, 50, 42));
  const std::string path = "c/" + part.file();
  for (int64_t bit = 0; bit < part.bytes() * 8; ++bit) {
    disk.FlipBit(path, bit);
    const absl::Status status = ReadShardFile(disk, "c", "job-1", part).status();
    INFO("bit " << bit << ": " << status);
    REQUIRE(status.code() == absl::StatusCode::kDataLoss);
    REQUIRE(std::string(status.message()).find(path) == 0);
    disk.FlipBit(path, bit);
  }
  REQUIRE_OK(ReadShardFile(disk, "c", "job-1", part));
}

TEST_CASE("ShardFile: flipped bytes of a large file name their block", "[common][checkpoint]") {
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("c"));
  const v1::CheckpointPart part = Write(disk, MakeSnapshot(7, 400'000, 42));  // 4 blocks.
  const std::string path = "c/" + part.file();
  const struct {
    int64_t byte;
    std::string text;
  } cases[] = {{20, "header"},
               {100, "block 0 at byte 81"},
               {kShardFileBlockBytes + 200, "block 1"},
               {2 * kShardFileBlockBytes + 200, "block 2"},
               {part.bytes() - 30, "block 3"},
               {part.bytes() - 1, "footer"}};
  for (const auto& [byte, text] : cases) {
    disk.FlipBit(path, byte * 8);
    CHECK_STATUS(ReadShardFile(disk, "c", "job-1", part), absl::StatusCode::kDataLoss, text);
    disk.FlipBit(path, byte * 8);
  }
}

TEST_CASE("ShardFile: blocks in another order, a file cut short or grown are found",
          "[common][checkpoint]") {
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("c"));
  const v1::CheckpointPart part = Write(disk, MakeSnapshot(7, 400'000, 42));
  const std::string path = "c/" + part.file();
  REQUIRE_OK_AND_ASSIGN(const std::string good, disk.Read(path, 1 << 26));
  const auto rewrite = [&](const std::string& bytes) {
    REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<WritableFile> file, disk.Create(path));
    REQUIRE_OK(file->Append(bytes));
  };
  const size_t head = 81;
  const size_t block = static_cast<size_t>(kShardFileBlockBytes) + 4;
  rewrite(good.substr(0, head) + good.substr(head + block, block) + good.substr(head, block) +
          good.substr(head + 2 * block));
  CHECK_STATUS(ReadShardFile(disk, "c", "job-1", part), absl::StatusCode::kDataLoss, "block 0");
  for (const size_t size : {size_t{0}, size_t{60}, head, head + block, good.size() - 1}) {
    rewrite(good.substr(0, size));
    CHECK_STATUS(ReadShardFile(disk, "c", "job-1", part), absl::StatusCode::kDataLoss, path);
  }
  rewrite(good + "x");
  CHECK_STATUS(ReadShardFile(disk, "c", "job-1", part), absl::StatusCode::kDataLoss, "expected");
  REQUIRE_OK(disk.Remove(path));
  CHECK_STATUS(ReadShardFile(disk, "c", "job-1", part), absl::StatusCode::kDataLoss, path);
}

TEST_CASE("ShardFile: a whole file of something else is refused", "[common][checkpoint]") {
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("c"));
  const v1::CheckpointPart part = Write(disk, MakeSnapshot(7, 50, 42));
  CHECK_STATUS(ReadShardFile(disk, "c", "job-2", part), absl::StatusCode::kDataLoss,
               "expected job job-2, table 1");
  v1::CheckpointPart other = part;
  other.set_version(43);
  CHECK_STATUS(ReadShardFile(disk, "c", "job-1", other), absl::StatusCode::kDataLoss, "version 43");
  // The same shard at the same version, written by another run.
  Write(disk, MakeSnapshot(8, 50, 42));
  CHECK_STATUS(ReadShardFile(disk, "c", "job-1", part), absl::StatusCode::kDataLoss, "whole file");
}

TEST_CASE("ShardFile: a disk that fails is not taken for a damaged file", "[common][checkpoint]") {
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("c"));
  const v1::CheckpointPart part = Write(disk, MakeSnapshot(7, 50, 42));
  SimDisk::Rates rates;
  rates.read_error = 1;
  disk.SetRates(rates);
  CHECK_STATUS(ReadShardFile(disk, "c", "job-1", part), absl::StatusCode::kUnavailable, "read");
  disk.SetRates({});
  disk.SetCapacity(disk.bytes() + 10);
  CHECK_STATUS(WriteShardFile(disk, "c", "job-1", {TableId(0), ShardId(0)}, {0, 50},
                              MakeSnapshot(7, 50, 42)),
               absl::StatusCode::kResourceExhausted, "table-0-shard-0.part");
  CHECK(disk.files().size() == 1);  // Nothing is left beside it.
}

}  // namespace
}  // namespace capstan
