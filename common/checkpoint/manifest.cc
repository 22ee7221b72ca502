#include "common/checkpoint/manifest.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/read_checked.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/crc32c.h"
#include "common/storage/file_name.h"
#include "common/storage/little_endian.h"
#include "common/storage/write_durably.h"

namespace capstan {
namespace {

constexpr absl::string_view kManifestMagic = "CAPCKPT1";
constexpr size_t kHeadBytes = 16;

std::string PathOf(const std::string& folder) { return absl::StrCat(folder, "/", kManifestFile); }

// Checks that the bases of a part are files of earlier checkpoints, in ascending order.
absl::Status CheckBases(const v1::CheckpointPart& part, uint64_t checkpoint) {
  uint64_t id = 0;
  int64_t version = 0;
  for (const v1::PartBase& base : part.bases()) {
    const bool in_order = base.checkpoint_id() > id && base.checkpoint_id() < checkpoint &&
                          base.version() >= version && base.version() <= part.version();
    const bool is_file = IsFileName(base.file()) && base.bytes() > 0;
    if (!in_order || !is_file) {
      return absl::InvalidArgumentError(
          absl::StrCat("rests on checkpoint ", base.checkpoint_id(), " at version ", base.version(),
                       ", file '", absl::CHexEscape(base.file()), "' of ", base.bytes(),
                       " bytes: expected ", kFileNameRule, " of one behind ", id, " and before ",
                       checkpoint, ", at version ", version, " to ", part.version()));
    }
    id = base.checkpoint_id();
    version = base.version();
  }
  if (part.base_id() == id) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rests on checkpoint ", part.base_id(),
                                                 ", its files end with ", id, " (0: it has all)"));
}

absl::Status CheckParts(const v1::CheckpointManifest& manifest) {
  int table = 0;
  int shard = 0;
  int64_t end = 0;  // The parts so far cover the table's elements [0, end).
  for (const v1::CheckpointPart& part : manifest.parts()) {
    // Tables of no elements have no parts.
    while (table < manifest.tables_size() && end == manifest.tables(table).elements()) {
      ++table;
      shard = 0;
      end = 0;
    }
    const std::string where =
        absl::StrCat("part of table ", part.table(), ", shard ", part.shard(), ", elements [",
                     part.element_begin(), ", ", part.element_end(), ")");
    if (table == manifest.tables_size() || part.table() != table || part.shard() != shard ||
        part.element_begin() != end || part.element_end() <= end ||
        part.element_end() > manifest.tables(table).elements()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": expected table ", table, ", shard ",
                                                     shard, ", elements from ", end));
    }
    if (!IsFileName(part.file()) || part.bytes() <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": file '", absl::CHexEscape(part.file()), "' of ", part.bytes(),
                       " bytes, expected ", kFileNameRule, ", and at least 1 byte"));
    }
    CAPSTAN_RETURN_IF_ERROR(Annotate(CheckBases(part, manifest.checkpoint_id()), where));
    ++shard;
    end = part.element_end();
  }
  while (table < manifest.tables_size() && end == manifest.tables(table).elements()) {
    ++table;
    end = 0;
  }
  if (table != manifest.tables_size()) {
    return absl::InvalidArgumentError(absl::StrCat("the parts of table ", table, " end at element ",
                                                   end, ", expected ",
                                                   manifest.tables(table).elements()));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::CheckpointManifest> Decode(absl::string_view file) {
  if (file.size() < kHeadBytes + Crc32c::kBytes ||
      file.substr(0, kManifestMagic.size()) != kManifestMagic) {
    return absl::DataLossError("the file does not begin as a manifest");
  }
  const size_t end = file.size() - Crc32c::kBytes;
  const uint32_t found = GetLe32(file, end);
  const uint32_t expected = MaskCrc(Crc32cOf(file.substr(0, end)));
  if (found != expected) {
    return absl::DataLossError(absl::StrCat("the checksum at byte ", end, " is ", absl::Hex(found),
                                            ", expected ", absl::Hex(expected)));
  }
  const uint64_t bytes = GetLe64(file, kManifestMagic.size());
  if (bytes != end - kHeadBytes) {
    return absl::DataLossError(
        absl::StrCat("the message has ", end - kHeadBytes, " bytes, expected ", bytes));
  }
  v1::CheckpointManifest manifest;
  if (!manifest.ParseFromArray(file.data() + kHeadBytes, static_cast<int>(bytes))) {
    return absl::DataLossError("the message is not a CheckpointManifest");
  }
  if (const absl::Status status = CheckManifest(manifest); !status.ok()) {
    return absl::DataLossError(status.message());
  }
  return manifest;
}

}  // namespace

absl::Status CheckManifest(const v1::CheckpointManifest& manifest) {
  if (manifest.format() != kManifestFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("format is ", manifest.format(), ", expected ", kManifestFormat));
  }
  if (manifest.job_id().empty()) return absl::InvalidArgumentError("job_id is empty");
  if (manifest.checkpoint_id() == 0) {
    return absl::InvalidArgumentError("checkpoint_id is 0, expected at least 1");
  }
  for (int i = 0; i < manifest.tables_size(); ++i) {
    const v1::TableSpec& table = manifest.tables(i);
    if (table.table() != i || table.elements() < 0) {
      return absl::InvalidArgumentError(absl::StrCat("tables[", i, "] is table ", table.table(),
                                                     " of ", table.elements(),
                                                     " elements, expected table ", i));
    }
  }
  return CheckParts(manifest);
}

absl::Status WriteManifest(Disk& disk, const std::string& folder,
                           const v1::CheckpointManifest& manifest) {
  CAPSTAN_RETURN_IF_ERROR(Annotate(CheckManifest(manifest), "manifest"));
  const std::string message = manifest.SerializeAsString();
  std::string file(kManifestMagic);
  PutLe64(message.size(), &file);
  file += message;
  PutLe32(MaskCrc(Crc32cOf(file)), &file);
  return WriteDurably(disk, PathOf(folder), {file});
}

absl::StatusOr<v1::CheckpointManifest> ReadManifest(Disk& disk, const std::string& folder) {
  const std::string path = PathOf(folder);
  return ReadChecked<v1::CheckpointManifest>(disk, path, kManifestBytesMax,
                                             [](const std::string& file) { return Decode(file); });
}

}  // namespace capstan
