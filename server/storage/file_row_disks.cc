#include "server/storage/file_row_disks.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "server/storage/row_log.h"

namespace capstan::server {

absl::StatusOr<std::unique_ptr<FileRowDisks>> FileRowDisks::Create(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (!error) std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("folder for rows ", folder, ": ", error.message()));
  }
  std::unique_ptr<FileRowDisks> disks(new FileRowDisks(folder));
  return disks;
}

absl::StatusOr<std::unique_ptr<RowDisk>> FileRowDisks::Open(int64_t body_bytes) {
  const auto bytes = static_cast<size_t>(body_bytes);
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<SpillFile> file = files_[body_bytes].lock();
  if (file == nullptr) {
    CAPSTAN_ASSIGN_OR_RETURN(file, SpillFile::Create(folder_, RowLog::SegmentBytes(bytes)));
    files_[body_bytes] = file;
  }
  return std::make_unique<RowLog>(std::move(file), bytes);
}

}  // namespace capstan::server
