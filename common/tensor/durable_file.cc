#include "common/tensor/durable_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace capstan {
namespace {

constexpr size_t kWriteBytesMax = size_t{1} << 30;  // Linux writes at most 2 GiB - 4 KiB a call.

absl::Status ErrnoStatus(const char* what, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path));
}

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), std::min(bytes.size(), kWriteBytesMax));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus("write", path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status WriteAndSync(const std::string& path, absl::Span<const absl::string_view> parts) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus("create", path);
  absl::Status status;
  for (const absl::string_view part : parts) {
    if (status.ok()) status = WriteAll(fd, part, path);
  }
  if (status.ok() && fsync(fd) != 0) status = ErrnoStatus("sync", path);
  if (close(fd) != 0 && status.ok()) status = ErrnoStatus("close", path);
  return status;
}

absl::Status SyncDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus("open", path);
  absl::Status status;
  // Some file systems cannot sync folders; their renames are as durable as they get.
  if (fsync(fd) != 0 && errno != EINVAL) status = ErrnoStatus("sync", path);
  close(fd);
  return status;
}

}  // namespace

absl::Status WriteFileDurably(const std::string& path, absl::Span<const absl::string_view> parts) {
  const std::string temporary = absl::StrCat(path, ".tmp-", getpid());
  absl::Status status = WriteAndSync(temporary, parts);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus("rename a temporary file to", path);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  const std::string directory = std::filesystem::path(path).parent_path().string();
  return SyncDirectory(directory.empty() ? "." : directory);
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the folder ", path));
}

}  // namespace capstan
