#include "scheduler/files/received_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/process/random_hex.h"
#include "common/status/status_macros.h"
#include "common/storage/file_name.h"
#include "common/storage/files/path_access.h"
#include "common/storage/write_durably.h"
#include "common/types/staging.h"

namespace capstan::scheduler {
namespace {

constexpr int64_t kMarkBytesMax = 64;

// Turns kUnavailable, after which senders repeat the call, into kAborted: a disk error would only
// occur again.
absl::Status Told(const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return status;
  return absl::AbortedError(status.message());
}

absl::StatusOr<std::string> PathOf(const std::string& folder, const std::string& file) {
  if (IsFileName(file)) return absl::StrCat(folder, "/", file);
  return absl::InvalidArgumentError(
      absl::StrCat("file: \"", absl::CHexEscape(file), "\", expected ", kFileNameRule));
}

absl::Status BeginAnew(const std::string& path, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", why, ", begin it anew"));
}

}  // namespace

absl::StatusOr<std::string> ReceivedFiles::MarkFolder(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kFolderMark);
  const absl::StatusOr<std::string> there = disk_->Read(path, kMarkBytesMax);
  if (there.ok() && !there->empty()) return *there;
  CAPSTAN_RETURN_IF_ERROR(Told(disk_->MakeFolder(folder)));
  const std::string mark = RandomHex();
  CAPSTAN_RETURN_IF_ERROR(Told(WriteDurably(*disk_, path, {mark})));
  return mark;
}

absl::Status ReceivedFiles::Write(const std::string& folder, const std::string& file,
                                  int64_t offset, absl::string_view data, uint32_t crc32c,
                                  Instant now) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string path, PathOf(folder, file));
  const auto size = static_cast<int64_t>(data.size());
  if (offset < 0 || size > kPieceBytesMax || (size == 0 && offset > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", size, " bytes at offset ", offset,
                                                   ", expected at most ", kPieceBytesMax));
  }
  if (Crc32cOf(data) != crc32c) {
    return absl::UnavailableError(
        absl::StrCat(path, ": the piece at offset ", offset, " was damaged on its way"));
  }
  auto open = open_.find(path);
  if (open != open_.end() && offset == open->second.last_offset &&
      crc32c == open->second.last_crc32c && offset + size == open->second.bytes) {
    return absl::OkStatus();
  }
  if (offset == 0) {
    CAPSTAN_RETURN_IF_ERROR(Begin(path, now));
    open = open_.find(path);
  }
  if (open == open_.end()) return BeginAnew(path, "nothing of it is here");
  Open& state = open->second;
  if (offset != state.bytes) {
    return BeginAnew(path, absl::StrCat("offset ", offset, ", expected ", state.bytes));
  }
  if (const absl::Status written = state.file->Append(data); !written.ok()) {
    Forget(path);
    return Told(written);
  }
  state.crc.Add(data);
  state.last_offset = offset;
  state.last_crc32c = crc32c;
  state.bytes += size;
  state.last_at = now;
  return absl::OkStatus();
}

absl::Status ReceivedFiles::Begin(const std::string& path, Instant now) {
  open_.erase(path);
  CAPSTAN_RETURN_IF_ERROR(MakeRoom(now));
  absl::StatusOr<std::unique_ptr<WritableFile>> file = disk_->Create(path);
  if (!file.ok()) return Told(file.status());
  open_[path] = {.file = *std::move(file), .last_at = now};
  return absl::OkStatus();
}

absl::Status ReceivedFiles::MakeRoom(Instant now) {
  std::vector<std::string> idle;
  for (const auto& [path, open] : open_) {
    if (now - open.last_at >= options_.idle_limit) idle.push_back(path);
  }
  for (const std::string& path : idle) Forget(path);
  if (open_.size() < options_.open_max) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(open_.size(), " files are being received; try again"));
}

void ReceivedFiles::Forget(const std::string& path) {
  open_.erase(path);
  disk_->Remove(path).IgnoreError();  // A file that stays is removed with its folder.
}

absl::Status ReceivedFiles::Finish(const std::string& folder, const std::string& file,
                                   const std::string& name, int64_t bytes, uint32_t crc32c) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string from, PathOf(folder, file));
  CAPSTAN_ASSIGN_OR_RETURN(const std::string to, PathOf(folder, name));
  const auto open = open_.find(from);
  if (open == open_.end()) return CheckFinished(to, bytes, crc32c);
  const Open& state = open->second;
  if (state.bytes != bytes || state.crc.value() != crc32c) {
    const std::string found = absl::StrCat(from, " has ", state.bytes, " bytes with checksum ",
                                           absl::Hex(state.crc.value()));
    Forget(from);
    return absl::DataLossError(
        absl::StrCat(found, ", its sender says ", bytes, " with ", absl::Hex(crc32c)));
  }
  if (const absl::Status synced = state.file->Sync(); !synced.ok()) {
    Forget(from);
    return Told(synced);
  }
  open_.erase(open);
  CAPSTAN_RETURN_IF_ERROR(Told(disk_->Rename(from, to)));
  return Told(disk_->SyncFolder(folder));
}

absl::Status ReceivedFiles::CheckFinished(const std::string& path, int64_t bytes, uint32_t crc32c) {
  struct stat found;
  if (StatPath(path, &found) != 0 || found.st_size != bytes) {
    return BeginAnew(path, "it is not here, nor being received");
  }
  Crc32c crc;
  for (int64_t at = 0; at < bytes; at += kPieceBytesMax) {
    const absl::StatusOr<std::string> piece =
        disk_->ReadPart(path, at, std::min(kPieceBytesMax, bytes - at));
    if (!piece.ok()) return Told(piece.status());
    crc.Add(*piece);
  }
  if (crc.value() != crc32c) return BeginAnew(path, "another one is in its place");
  return Told(disk_->SyncFolder(FolderOf(path)));
}

absl::StatusOr<ReceivedFiles::Piece> ReceivedFiles::Read(const std::string& folder,
                                                         const std::string& file, int64_t offset,
                                                         int64_t bytes_max) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string path, PathOf(folder, file));
  if (offset < 0 || bytes_max < 1 || bytes_max > kPieceBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", bytes_max, " bytes at offset ",
                                                   offset, ", expected 1 to ", kPieceBytesMax));
  }
  struct stat status;
  if (StatPath(path, &status) != 0) {
    return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  Piece piece{.file_bytes = status.st_size};
  const int64_t bytes = std::min(bytes_max, piece.file_bytes - offset);
  if (bytes <= 0) return piece;
  absl::StatusOr<std::string> data = disk_->ReadPart(path, offset, bytes);
  // For its readers a file that the disk does not read is damaged; kUnavailable would say that the
  // scheduler does not answer.
  if (absl::IsUnavailable(data.status())) return absl::DataLossError(data.status().message());
  if (!data.ok()) return data.status();
  piece.data = *std::move(data);
  return piece;
}

}  // namespace capstan::scheduler
