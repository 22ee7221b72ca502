#include "common/checkpoint/shard_file.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/testing/test_checkpoint.h"
#include "common/storage/little_endian.h"
#include "common/storage/posix_disk.h"
#include "common/storage/testing/sim_disk.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::shard_file_test {
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

// Rows of 4 bytes of weights and as many of state.
v1::ShardSnapshot MakePiece(uint64_t first, uint64_t count) {
  v1::ShardSnapshot piece;
  std::string weights;
  std::string& state = *piece.add_optimizer_state();
  for (uint64_t i = first; i < first + count; ++i) {
    PutLe64(i, piece.mutable_values());
    PutLe32(static_cast<uint32_t>(i * 7), &weights);
    PutLe32(static_cast<uint32_t>(i * 11), &state);
    PutLe32(static_cast<uint32_t>(i % 5), piece.mutable_bucket()->mutable_stamps());
  }
  *piece.mutable_values() += weights;
  return piece;
}

TEST_CASE("ShardFile: rows that are written in pieces are read as one", "[common][checkpoint]") {
  v1::ShardSnapshot head;
  head.set_elements(1);
  head.set_position(9);
  head.mutable_state()->set_version(42);
  head.mutable_bucket()->set_hand(5);
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("c"));
  constexpr uint64_t kRows = 150'000;  // 3 blocks.
  const uint64_t piece = GENERATE(uint64_t{777}, uint64_t{150'000});
  REQUIRE_OK_AND_ASSIGN(ShardFileWriter writer,
                        ShardFileWriter::Begin(&disk, "c", "job-1", kKey, {3, 4}, head));
  for (uint64_t first = 0; first < kRows; first += piece) {
    REQUIRE_OK(writer.Add(MakePiece(first, std::min(piece, kRows - first))));
  }
  REQUIRE_OK(writer.Add(MakePiece(0, 0)));
  CHECK(disk.files() == std::vector<std::string>{"c/table-1-shard-2.part.tmp"});
  REQUIRE_OK_AND_ASSIGN(const v1::CheckpointPart part, writer.Finish());
  disk.Crash(SimDisk::Unsynced::kLost);
  REQUIRE_OK_AND_ASSIGN(const v1::ShardSnapshot read, ReadShardFile(disk, "c", "job-1", part));
  v1::ShardSnapshot expected = head;
  expected.MergeFrom(MakePiece(0, kRows));
  CHECK((read.SerializeAsString() == expected.SerializeAsString()));
}

TEST_CASE("ShardFile: a bucket may be larger than any message", "[common][checkpoint]") {
  v1::ShardSnapshot head;
  head.set_elements(1);
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("c"));
  REQUIRE_OK_AND_ASSIGN(ShardFileWriter writer,
                        ShardFileWriter::Begin(&disk, "c", "job-1", kKey, {3, 4}, head));
  const v1::ShardSnapshot piece = MakePiece(0, 1'000'000);  // 20 MB.
  for (int i = 0; i < 4; ++i) REQUIRE_OK(writer.Add(piece));
  REQUIRE_OK_AND_ASSIGN(const v1::CheckpointPart part, writer.Finish());
  CHECK(part.bytes() > 76 << 20);
  REQUIRE_OK_AND_ASSIGN(const v1::ShardSnapshot read, ReadShardFile(disk, "c", "job-1", part));
  CHECK(read.bucket().stamps().size() == 16'000'000);
}

TEST_CASE("ShardFile: pieces that do not fit, or are too many, are refused by name",
          "[common][checkpoint]") {
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("c"));
  v1::ShardSnapshot head;
  head.set_elements(1);
  {
    REQUIRE_OK_AND_ASSIGN(ShardFileWriter writer,
                          ShardFileWriter::Begin(&disk, "c", "job-1", kKey, {3, 4}, head));
    REQUIRE_OK(writer.Add(MakePiece(0, 10)));
    v1::ShardSnapshot odd = MakePiece(10, 10);
    odd.add_optimizer_state("more");
    REQUIRE_OK(writer.Add(odd));
    REQUIRE_OK_AND_ASSIGN(const v1::CheckpointPart part, writer.Finish());
    CHECK_STATUS(ReadShardFile(disk, "c", "job-1", part), absl::StatusCode::kDataLoss,
                 "piece 1: 40 bytes of stamps, 120 of keys and rows, 2 parts of state");
    REQUIRE_OK(disk.Remove("c/" + part.file()));
  }
  {
    REQUIRE_OK_AND_ASSIGN(ShardFileWriter writer,
                          ShardFileWriter::Begin(&disk, "c", "job-1", kKey, {3, 4}, head, 70'000));
    const v1::ShardSnapshot large = MakePiece(0, 1'000);  // 20 KB.
    for (int i = 0; i < 3; ++i) REQUIRE_OK(writer.Add(large));
    CHECK_STATUS(writer.Add(large), absl::StatusCode::kInvalidArgument,
                 "c/table-1-shard-2.part would have more than");
  }
  CHECK(disk.files().empty());  // No unfinished file is left.
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
               {100, "block 0 at byte 69"},
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
  const size_t head = 69;
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
}  // namespace capstan::shard_file_test
