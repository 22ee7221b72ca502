// Bytes as a checkpoint's manifest on a simulated disk: as they are, or with a right size and
// checksum. A manifest that is read is one that may be written, and is then read as the same;
// whatever lies there, the checkpoint's folder is listed and verified without its parts.
#include "common/checkpoint/manifest.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/storage/crc32c.h"
#include "common/storage/little_endian.h"
#include "common/storage/testing/sim_disk.h"
#include "proto/checkpoint.pb.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/sim_files.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

std::string Sealed(absl::string_view message) {
  std::string file = "CAPCKPT1";
  PutLe64(message.size(), &file);
  absl::StrAppend(&file, message);
  PutLe32(MaskCrc(Crc32cOf(file)), &file);
  return file;
}

void CheckAccepted(const v1::CheckpointManifest& manifest) {
  SimDisk disk(/*seed=*/1);
  FUZZ_CHECK(disk.MakeFolder("copy").ok());
  FUZZ_CHECK(WriteManifest(disk, "copy", manifest).ok());
  const absl::StatusOr<v1::CheckpointManifest> again = ReadManifest(disk, "copy");
  FUZZ_CHECK(again.ok() && again->SerializeAsString() == manifest.SerializeAsString());
  FUZZ_CHECK(RestsOn(manifest).value() <= manifest.checkpoint_id());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const bool sealed = input.Byte() % 2 == 0;
  const absl::string_view bytes = input.Rest();
  SimDisk disk(/*seed=*/1);
  WriteFile(disk, "job/checkpoint-7", kManifestFile, sealed ? Sealed(bytes) : std::string(bytes));
  const absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(disk, "job/checkpoint-7");
  if (manifest.ok()) CheckAccepted(*manifest);
  if (!manifest.ok()) FUZZ_CHECK(absl::IsDataLoss(manifest.status()));
  const auto entries = ListCheckpoints(disk, "job");
  FUZZ_CHECK(entries.ok() && entries->size() == 1);
  VerifyCheckpoint(disk, "job/checkpoint-7").status().IgnoreError();
  FUZZ_CHECK(RemoveCheckpoint(disk, "job/checkpoint-7").ok());
  return 0;
}

}  // namespace capstan::fuzz
