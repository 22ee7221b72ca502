#include "server/log/kept_record.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/status_macros.h"
#include "common/storage/crc32c.h"
#include "common/storage/little_endian.h"
#include "common/storage/write_durably.h"

namespace capstan::server {
namespace {

constexpr absl::string_view kMagic = "CAPREC01";
constexpr size_t kHeadBytes = 12;

}  // namespace

std::string KeptRecordPath(const std::string& log_folder) {
  return absl::StrCat(log_folder, "/record");
}

absl::Status WriteKeptRecord(Disk& disk, const std::string& log_folder, const std::string& record) {
  std::string head(kMagic);
  PutLe32(MaskCrc(Crc32cOf(record)), &head);
  return WriteDurably(disk, KeptRecordPath(log_folder), {head, record});
}

absl::StatusOr<std::string> ReadKeptRecord(Disk& disk, const std::string& log_folder) {
  const std::string path = KeptRecordPath(log_folder);
  CAPSTAN_ASSIGN_OR_RETURN(std::string bytes,
                           disk.Read(path, static_cast<int64_t>(kHeadBytes) + kRecordBytesMax));
  if (bytes.size() >= kHeadBytes && absl::string_view(bytes).substr(0, kMagic.size()) == kMagic) {
    const uint32_t crc = GetLe32(bytes, kMagic.size());
    std::string record = bytes.substr(kHeadBytes);
    if (crc == MaskCrc(Crc32cOf(record))) return record;
  }
  return absl::DataLossError(
      absl::StrCat(path, ": ", bytes.size(), " bytes that are no record with its checksum"));
}

}  // namespace capstan::server
