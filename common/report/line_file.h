// LineFile: appends whole lines to a text file.
//
// Lines are handed to the operating system in one write before Append returns, so a reader that
// follows the file, or reads it after a crash of this process, sees whole lines. Opening a file
// whose last line is torn (the machine went down in mid-write) starts a new line first.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_REPORT_LINE_FILE_H_
#define CAPSTAN_COMMON_REPORT_LINE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/files/descriptor.h"

namespace capstan {

class LineFile {
 public:
  // Opens `path` for appending and makes it (mode 0600) if it is missing; its folder must exist.
  // Errors: those of open(2) and read(2), with the path.
  static absl::StatusOr<std::unique_ptr<LineFile>> Open(const std::string& path);

  // Same, for a file that the caller has opened, with O_RDWR | O_APPEND; `path` is for errors.
  // Errors: those of lseek(2) and read(2), with the path.
  static absl::StatusOr<std::unique_ptr<LineFile>> Take(Descriptor file, const std::string& path);

  // Appends `lines`: whole ones, each with its newline.
  // Errors: those of write(2), with the path (kResourceExhausted: no space left). The lines may
  // then be in the file in part; the next Append starts a new line.
  absl::Status Append(absl::string_view lines);

  int64_t bytes() const { return bytes_; }  // The file's size, unless others write to it, too.

 private:
  LineFile(std::string path, Descriptor file, int64_t bytes, bool torn);

  const std::string path_;
  const Descriptor file_;
  int64_t bytes_;
  bool torn_;  // The file's last line has no newline.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_REPORT_LINE_FILE_H_
