#include "server/store/sparse/disk/file_row_disks.h"

#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/own_folder.h"
#include "server/store/sparse/disk/row_log.h"

namespace capstan::server {

absl::StatusOr<std::unique_ptr<FileRowDisks>> FileRowDisks::Create(const std::string& folder) {
  CAPSTAN_RETURN_IF_ERROR(Annotate(EmptyOwnFolder(folder), "folder for rows " + folder));
  std::unique_ptr<FileRowDisks> disks(new FileRowDisks(folder));
  return disks;
}

absl::StatusOr<std::unique_ptr<RowDisk>> FileRowDisks::Open(int64_t payload_bytes) {
  const auto bytes = static_cast<size_t>(payload_bytes);
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<SpillFile> file = files_[payload_bytes].lock();
  if (file == nullptr) {
    CAPSTAN_ASSIGN_OR_RETURN(file, SpillFile::Create(folder_, RowLog::SegmentBytes(bytes)));
    files_[payload_bytes] = file;
  }
  return std::make_unique<RowLog>(std::move(file), bytes);
}

}  // namespace capstan::server
