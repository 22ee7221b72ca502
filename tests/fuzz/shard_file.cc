// A checkpoint's part on a simulated disk. Any bytes, whose size and checksum the manifest has
// right, are refused or read. A snapshot that was written is read as what it is with its pieces
// joined, and no longer once one bit of the file has changed.
#include "common/checkpoint/shard_file.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/row_pieces.h"
#include "common/storage/crc32c.h"
#include "common/storage/testing/sim_disk.h"
#include "common/types/ids.h"
#include "proto/checkpoint_part.pb.h"
#include "proto/shard_state.pb.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/sim_files.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

constexpr ShardKey kKey{TableId(0), ShardId(3)};

void CheckBytes(absl::string_view bytes) {
  SimDisk disk(/*seed=*/1);
  v1::CheckpointPart part;
  part.set_shard(kKey.shard.value());
  part.set_file(ShardFileName(kKey));
  part.set_bytes(static_cast<int64_t>(bytes.size()));
  part.set_crc32c(Crc32cOf(bytes));
  WriteFile(disk, "folder", part.file(), bytes);
  ProbeShardFile(disk, "folder", "job-1", part).IgnoreError();
  ReadShardFile(disk, "folder", "job-1", part).status().IgnoreError();
}

void CheckSnapshot(v1::ShardSnapshot snapshot, uint64_t bit) {
  SimDisk disk(/*seed=*/1);
  FUZZ_CHECK(disk.MakeFolder("folder").ok());
  const absl::StatusOr<v1::CheckpointPart> part =
      WriteShardFile(disk, "folder", "job-1", kKey, {0, snapshot.elements()}, snapshot);
  FUZZ_CHECK(part.ok());
  FUZZ_CHECK(ProbeShardFile(disk, "folder", "job-1", *part).ok());
  const absl::StatusOr<v1::ShardSnapshot> read = ReadShardFile(disk, "folder", "job-1", *part);
  FUZZ_CHECK(JoinRowPieces(&snapshot).ok() == read.ok());
  if (read.ok()) FUZZ_CHECK(read->SerializeAsString() == snapshot.SerializeAsString());
  disk.FlipBit(absl::StrCat("folder/", part->file()),
               static_cast<int64_t>(bit % (8 * static_cast<uint64_t>(part->bytes()))));
  FUZZ_CHECK(!ReadShardFile(disk, "folder", "job-1", *part).ok());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const bool whole = input.Byte() % 2 == 0;
  const uint16_t bit = input.Word();
  const absl::string_view bytes = input.Rest();
  if (!whole) CheckBytes(bytes);
  v1::ShardSnapshot snapshot;
  if (whole && snapshot.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    CheckSnapshot(std::move(snapshot), bit);
  }
  return 0;
}

}  // namespace capstan::fuzz
