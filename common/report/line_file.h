// LineFile: appends whole lines to a text file.
//
// Lines are handed to the operating system in one write before Append returns, so a reader that
// follows the file, or reads it after a crash of this process, sees whole lines. Opening a file
// whose last line is torn (the machine went down in mid-write) starts a new line first.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_REPORT_LINE_FILE_H_
#define CAPSTAN_COMMON_REPORT_LINE_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace capstan {

class LineFile {
 public:
  // Opens `path` for appending and makes it (mode 0644) if it is missing; its folder must exist.
  // Errors: those of open(2) and read(2), with the path.
  static absl::StatusOr<std::unique_ptr<LineFile>> Open(const std::string& path);

  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Appends `lines`: whole ones, each with its newline.
  // Errors: those of write(2), with the path (kResourceExhausted: no space left). The lines may
  // then stand in the file in part; the next Append starts a new line.
  absl::Status Append(absl::string_view lines);

 private:
  LineFile(std::string path, int fd, bool torn);

  const std::string path_;
  const int fd_;  // Owned; closed by the destructor.
  bool torn_;     // The file's last line has no newline.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_REPORT_LINE_FILE_H_
