#include "common/tensor/safetensors/durable_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/storage/files/file_bytes.h"
#include "common/storage/files/path_access.h"
#include "common/storage/files/replace_file.h"
#include "common/storage/write_durably.h"

namespace capstan {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 20;  // Bytes between two reports of progress.
constexpr size_t kCopyBytes = 1 << 20;

absl::Status ErrnoStatus(const char* what, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path));
}

}  // namespace

absl::Status SyncDirectory(const std::string& path) {
  const int fd = OpenPath(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return ErrnoStatus("open", path);
  absl::Status status;
  // Some file systems cannot sync folders; their renames are as durable as they get.
  if (fsync(fd) != 0 && errno != EINVAL) status = ErrnoStatus("sync", path);
  close(fd);
  return status;
}

absl::StatusOr<std::unique_ptr<DurableFile>> DurableFile::Create(const std::string& path,
                                                                 const Progress& progress) {
  CAPSTAN_ASSIGN_OR_RETURN(TemporaryFile made, MakeTemporaryBeside(path));
  return std::unique_ptr<DurableFile>(
      new DurableFile(path, std::move(made.path), made.fd.Release(), progress));
}

DurableFile::~DurableFile() {
  if (!temporary_.empty()) RemovePath(temporary_);
}

absl::Status DurableFile::Append(absl::string_view bytes) {
  const int64_t begin = bytes_;
  bytes_ += static_cast<int64_t>(bytes.size());
  return Overwrite(begin, bytes);
}

absl::Status DurableFile::Overwrite(int64_t offset, absl::string_view bytes) {
  while (!bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, kPieceBytes);
    if (!WriteAllAt(fd_.get(), offset, piece)) return ErrnoStatus("write", temporary_);
    bytes.remove_prefix(piece.size());
    const auto written = static_cast<int64_t>(piece.size());
    offset += written;
    if (progress_) progress_("bytes written", written);
  }
  return absl::OkStatus();
}

absl::Status DurableFile::AppendFrom(const DurableFile& other) {
  std::string piece(kCopyBytes, '\0');
  for (int64_t at = 0; at < other.bytes();) {
    const int64_t got = ReadAt(other.fd_.get(), at, absl::MakeSpan(piece));
    if (got < 0) return ErrnoStatus("read", other.temporary_);
    if (got == 0) return absl::DataLossError(absl::StrCat(other.temporary_, " was cut short"));
    CAPSTAN_RETURN_IF_ERROR(Append(absl::string_view(piece.data(), static_cast<size_t>(got))));
    at += got;
  }
  return absl::OkStatus();
}

// Much may wait in memory for the disk. One fsync of all of it would report no progress meanwhile,
// so it is written out piece by piece. A failed write is reported once for each open file: fsync
// would not repeat what sync_file_range has reported.
absl::Status DurableFile::SyncByPieces() {
  constexpr unsigned kWriteOut =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  for (int64_t begin = 0; begin < bytes_;) {
    const int64_t piece = std::min(bytes_ - begin, static_cast<int64_t>(kPieceBytes));
    if (sync_file_range(fd_.get(), begin, piece, kWriteOut) != 0) {
      // Without the call here, or for this kind of file, fsync alone writes it out.
      if (errno == ENOSYS || errno == EINVAL || errno == ESPIPE) return absl::OkStatus();
      return ErrnoStatus("sync", temporary_);
    }
    progress_("bytes synced", piece);
    begin += piece;
  }
  return absl::OkStatus();
}

absl::Status DurableFile::Commit() {
  if (progress_) CAPSTAN_RETURN_IF_ERROR(SyncByPieces());
  if (fsync(fd_.get()) != 0) return ErrnoStatus("sync", temporary_);
  if (close(fd_.Release()) != 0) return ErrnoStatus("close", temporary_);
  if (RenamePath(temporary_, path_) != 0) {
    return ErrnoStatus("rename a temporary file to", path_);
  }
  temporary_.clear();
  return SyncDirectory(FolderOf(path_));
}

absl::Status WriteFileDurably(const std::string& path, absl::Span<const absl::string_view> parts,
                              const Progress& progress) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<DurableFile> file,
                           DurableFile::Create(path, progress));
  for (const absl::string_view part : parts) CAPSTAN_RETURN_IF_ERROR(file->Append(part));
  return file->Commit();
}

absl::Status MakeDirectories(const std::string& path) {
  return MakeFolders(path) == 0 ? absl::OkStatus() : ErrnoStatus("make the folder", path);
}

}  // namespace capstan
