// DurableDiskFile, WriteDurably: a file that is there whole or not at all, also after a power cut.
//
// The file is written beside `path` as <path>.tmp, synced and renamed over `path`; then its folder
// is synced.
// Thread safety: thread-safe for different paths; a DurableDiskFile is thread-compatible.
#ifndef CAPSTAN_COMMON_STORAGE_WRITE_DURABLY_H_
#define CAPSTAN_COMMON_STORAGE_WRITE_DURABLY_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/storage/disk.h"

namespace capstan {

inline constexpr absl::string_view kTemporarySuffix = ".tmp";

class DurableDiskFile {
 public:
  // `disk` outlives it. Errors, here and below: the disk's.
  static absl::StatusOr<DurableDiskFile> Create(Disk* disk, const std::string& path);
  DurableDiskFile(DurableDiskFile&&) = default;
  DurableDiskFile& operator=(DurableDiskFile&&) = delete;
  ~DurableDiskFile();  // Removes a file that was not committed.

  absl::Status Append(absl::string_view bytes) { return file_->Append(bytes); }
  // Call once. On failure the path is as it was, except after a failed sync of the folder: then it
  // is as it was or whole.
  absl::Status Commit();

 private:
  DurableDiskFile(Disk* disk, const std::string& path, std::unique_ptr<WritableFile> file)
      : disk_(disk), path_(path), file_(std::move(file)) {}

  Disk* disk_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;  // Null: committed, or moved from.
};

// Writes `parts` one after the other. On failure `path` is as it was, except after a failed sync of
// the folder: then it is as it was or whole. Errors: the disk's.
absl::Status WriteDurably(Disk& disk, const std::string& path,
                          absl::Span<const absl::string_view> parts);

// The folder that `path` lies in: "." if it names none.
std::string FolderOf(const std::string& path);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_WRITE_DURABLY_H_
