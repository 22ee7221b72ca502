#include "common/examples/files/file_ranges.h"

#include <dirent.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "common/examples/streams/input_file.h"
#include "common/examples/streams/open_stream.h"
#include "common/status/status_macros.h"
#include "common/storage/files/path_access.h"

namespace capstan {
namespace {

// Owns the paths that glob() has found, and frees them.
class Matches {
 public:
  // The folders are read as any path that a job names.
  Matches() {
    found_.gl_opendir = [](const char* path) -> void* { return OpenFolder(path); };
    found_.gl_readdir = [](void* folder) { return readdir(static_cast<DIR*>(folder)); };
    found_.gl_closedir = [](void* folder) { closedir(static_cast<DIR*>(folder)); };
    found_.gl_stat = [](const char* path, struct stat* status) { return StatPath(path, status); };
    found_.gl_lstat = [](const char* path, struct stat* status) { return StatLink(path, status); };
  }
  Matches(const Matches&) = delete;
  Matches& operator=(const Matches&) = delete;
  ~Matches() { globfree(&found_); }
  glob_t* get() { return &found_; }
  absl::Span<char* const> paths() const { return {found_.gl_pathv, found_.gl_pathc}; }

 private:
  glob_t found_ = {};
};

absl::Status AppendMatches(const std::string& pattern, std::vector<std::string>* files) {
  if (pattern.empty()) {
    return absl::InvalidArgumentError("files: an empty path, expected one or a glob");
  }
  const bool is_glob = pattern.find_first_of("*?[") != std::string::npos;
  struct stat unused;
  // A pattern without wildcards, or one that exists as it stands, names a file. Opening it reports
  // a missing file.
  if (!is_glob || StatLink(pattern, &unused) == 0) {
    files->push_back(pattern);
    return absl::OkStatus();
  }
  Matches matches;
  // The paths are sorted later, independently of the locale.
  const int result =
      glob(pattern.c_str(), GLOB_ERR | GLOB_NOSORT | GLOB_ALTDIRFUNC, nullptr, matches.get());
  const int error_number = errno;
  if (result == GLOB_NOMATCH || (result == GLOB_ABORTED && error_number == ENOENT)) {
    return absl::NotFoundError(absl::StrCat(pattern, ": no file matches, expected at least one"));
  }
  if (result == GLOB_NOSPACE) {
    return absl::ResourceExhaustedError(absl::StrCat(pattern, ": no memory to list its files"));
  }
  if (result != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(pattern, ": a folder of it cannot be read: ", std::strerror(error_number)));
  }
  for (const char* path : matches.paths()) files->emplace_back(path);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListFiles(absl::Span<const std::string> patterns) {
  if (patterns.empty()) {
    return absl::InvalidArgumentError("files: none given, expected one or more paths or globs");
  }
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    CAPSTAN_RETURN_IF_ERROR(AppendMatches(pattern, &files));
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  for (const std::string& path : files) CAPSTAN_RETURN_IF_ERROR(InputFile::Open(path).status());
  return files;
}

absl::Status AppendRanges(const std::string& path, int64_t bytes, int64_t range_bytes,
                          std::vector<FileRange>* ranges) {
  if (bytes == 0) return absl::OkStatus();
  const int64_t rest = bytes % range_bytes;
  const int64_t rounded = bytes / range_bytes + (rest > range_bytes - rest ? 1 : 0);
  const int64_t count = IsCompressed(path) ? 1 : std::max<int64_t>(1, rounded);
  const int64_t room = kFileRangesMax - static_cast<int64_t>(ranges->size());
  if (count > room) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", bytes, " bytes in ranges of ", range_bytes, " are ", count,
                     " ranges, expected at most ", room, " more: make range_bytes larger"));
  }
  const auto cut = [bytes, count](int64_t i) {
    return static_cast<int64_t>(absl::int128(bytes) * i / count);
  };
  for (int64_t i = 0; i < count; ++i) {
    ranges->push_back({.path = path, .begin = cut(i), .end = cut(i + 1)});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FileRange>> ListRanges(absl::Span<const std::string> patterns,
                                                  int64_t range_bytes) {
  if (range_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("range_bytes is ", range_bytes, ", expected at least 1"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListFiles(patterns));
  std::vector<FileRange> ranges;
  for (const std::string& path : files) {
    CAPSTAN_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
    if (file.bytes() == 0 && IsCompressed(path)) {
      return absl::DataLossError(
          absl::StrCat(path, ": truncated: 0 bytes, expected a compressed file"));
    }
    CAPSTAN_RETURN_IF_ERROR(AppendRanges(path, file.bytes(), range_bytes, &ranges));
  }
  if (ranges.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.front(), files.size() > 1 ? " and the other files are" : " is",
                     " empty, expected a file with lines"));
  }
  return ranges;
}

}  // namespace capstan
