#include "common/storage/write_durably.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

std::string TemporaryOf(const std::string& path) { return absl::StrCat(path, kTemporarySuffix); }

}  // namespace

absl::StatusOr<DurableDiskFile> DurableDiskFile::Create(Disk* disk, const std::string& path) {
  absl::StatusOr<std::unique_ptr<WritableFile>> file = disk->Create(TemporaryOf(path));
  if (file.ok()) return DurableDiskFile(disk, path, *std::move(file));
  disk->Remove(TemporaryOf(path)).IgnoreError();
  return file.status();
}

DurableDiskFile::~DurableDiskFile() {
  if (file_ == nullptr) return;
  file_.reset();
  disk_->Remove(TemporaryOf(path_)).IgnoreError();
}

absl::Status DurableDiskFile::Commit() {
  if (!Planted(PlantedBug::kPublishBeforeDurable)) CAPSTAN_RETURN_IF_ERROR(file_->Sync());
  CAPSTAN_RETURN_IF_ERROR(disk_->Rename(TemporaryOf(path_), path_));
  file_.reset();
  return disk_->SyncFolder(FolderOf(path_));
}

absl::Status WriteDurably(Disk& disk, const std::string& path,
                          absl::Span<const absl::string_view> parts) {
  CAPSTAN_ASSIGN_OR_RETURN(DurableDiskFile file, DurableDiskFile::Create(&disk, path));
  for (const absl::string_view part : parts) CAPSTAN_RETURN_IF_ERROR(file.Append(part));
  return file.Commit();
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace capstan
