#include "common/examples/streams/input_file.h"

#include <utility>

#include "common/status/status_macros.h"

namespace capstan {

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(RegularFile file, OpenRegularFile(path));
  return InputFile(path, std::move(file));
}

absl::StatusOr<size_t> InputFile::ReadAt(int64_t offset, absl::Span<char> room) const {
  return ReadFileAt(file_, path_, offset, room);
}

}  // namespace capstan
