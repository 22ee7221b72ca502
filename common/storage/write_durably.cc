#include "common/storage/write_durably.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

absl::Status WriteAndSync(Disk& disk, const std::string& path,
                          absl::Span<const absl::string_view> parts) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, disk.Create(path));
  for (const absl::string_view part : parts) CAPSTAN_RETURN_IF_ERROR(file->Append(part));
  return file->Sync();
}

}  // namespace

absl::Status WriteDurably(Disk& disk, const std::string& path,
                          absl::Span<const absl::string_view> parts) {
  const std::string temporary = absl::StrCat(path, kTemporarySuffix);
  absl::Status status = WriteAndSync(disk, temporary, parts);
  if (status.ok()) status = disk.Rename(temporary, path);
  if (!status.ok()) {
    disk.Remove(temporary).IgnoreError();
    return status;
  }
  return disk.SyncFolder(FolderOf(path));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace capstan
