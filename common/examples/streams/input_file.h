// InputFile: a regular file that is open to be read at any place.
//
// Thread safety: thread-compatible; reads do not disturb one another.
#ifndef CAPSTAN_COMMON_EXAMPLES_STREAMS_INPUT_FILE_H_
#define CAPSTAN_COMMON_EXAMPLES_STREAMS_INPUT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/storage/descriptor.h"

namespace capstan {

class InputFile {
 public:
  // Errors: kNotFound           no such file.
  //         kPermissionDenied   no right to read it, or not a regular file (a folder, a pipe).
  //         kResourceExhausted  too many open files, no memory.
  //         kDataLoss           the disk failed.
  // Every message begins with the path.
  static absl::StatusOr<InputFile> Open(const std::string& path);

  InputFile(InputFile&& other) noexcept
      : path_(std::move(other.path_)), file_(other.file_.Release()), bytes_(other.bytes_) {}
  InputFile& operator=(InputFile&&) = delete;

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  // When it was opened.

  // Fills `room` from `offset` on; fewer bytes than asked for mean the end of the file.
  // Errors: kDataLoss  the disk failed.
  absl::StatusOr<size_t> ReadAt(int64_t offset, absl::Span<char> room) const;

 private:
  InputFile(std::string path, int fd) : path_(std::move(path)), file_(fd) {}

  std::string path_;
  Descriptor file_;
  int64_t bytes_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_STREAMS_INPUT_FILE_H_
