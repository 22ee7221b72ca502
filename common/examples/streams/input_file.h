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
#include "common/storage/files/regular_file.h"

namespace capstan {

class InputFile {
 public:
  // Errors: those of OpenRegularFile.
  static absl::StatusOr<InputFile> Open(const std::string& path);

  InputFile(InputFile&& other) noexcept = default;
  InputFile& operator=(InputFile&&) = delete;

  const std::string& path() const { return path_; }
  int64_t bytes() const { return file_.bytes; }  // When it was opened.

  // Fills `room` from `offset` on; fewer bytes than asked for mean the end of the file.
  // Errors: kDataLoss  the disk failed.
  absl::StatusOr<size_t> ReadAt(int64_t offset, absl::Span<char> room) const;

 private:
  InputFile(std::string path, RegularFile file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  RegularFile file_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_STREAMS_INPUT_FILE_H_
