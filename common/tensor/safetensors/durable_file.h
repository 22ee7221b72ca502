// DurableFile, WriteFileDurably: write a file whole or not at all, even if the power fails.
//
// The file is written beside `path` under a name of its own, synced, and renamed over `path`; then
// the folder is synced. Writers of the same path at the same time, here or elsewhere, write
// different files: the last one stays. Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_TENSOR_SAFETENSORS_DURABLE_FILE_H_
#define CAPSTAN_COMMON_TENSOR_SAFETENSORS_DURABLE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/storage/files/descriptor.h"
#include "common/types/progress.h"

namespace capstan {

// Writes `parts` one after the other. On failure `path` is as it was and nothing is left beside it.
//   progress  gets "bytes written" and then, as they reach the disk, "bytes synced"
// Errors: that of the operating system, with the path (kNotFound: no such folder,
//         kPermissionDenied, kResourceExhausted: disk full...).
absl::Status WriteFileDurably(const std::string& path, absl::Span<const absl::string_view> parts,
                              const Progress& progress = nullptr);

// Same for a file that comes in pieces. Errors: as above; then it can only be destroyed.
class DurableFile {
 public:
  static absl::StatusOr<std::unique_ptr<DurableFile>> Create(const std::string& path,
                                                             const Progress& progress = nullptr);
  ~DurableFile();  // Before Commit: `path` is as it was, nothing is left beside it.
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  absl::Status Append(absl::string_view bytes);
  // Appends all of the other file, which is read in pieces.
  absl::Status AppendFrom(const DurableFile& other);
  // Overwrites bytes that have been appended.
  absl::Status Overwrite(int64_t offset, absl::string_view bytes);
  // Puts the file in its place. REQUIRES: called once, last of all.
  absl::Status Commit();

  int64_t bytes() const { return bytes_; }

 private:
  DurableFile(std::string path, std::string temporary, int fd, Progress progress)
      : path_(std::move(path)),
        temporary_(std::move(temporary)),
        fd_(fd),
        progress_(std::move(progress)) {}
  absl::Status SyncByPieces();

  const std::string path_;
  std::string temporary_;  // Empty once it is renamed.
  Descriptor fd_;
  const Progress progress_;
  int64_t bytes_ = 0;
};

// Makes the folder's renamed files durable against a power cut.
absl::Status SyncDirectory(const std::string& path);

// Makes the folder and those above it; it may exist.
absl::Status MakeDirectories(const std::string& path);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TENSOR_SAFETENSORS_DURABLE_FILE_H_
