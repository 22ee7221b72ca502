// RowKeyReader: reads the keys of a file of rows (row_file.h), one by one, in little memory.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_TENSOR_SAFETENSORS_ROW_KEY_READER_H_
#define CAPSTAN_COMMON_TENSOR_SAFETENSORS_ROW_KEY_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/files/regular_file.h"

namespace capstan {

class RowKeyReader {
 public:
  // Errors: those of OpenRegularFile. kDataLoss  it is no file of rows, or shorter than it says.
  static absl::StatusOr<RowKeyReader> Open(const std::string& path);

  // The current key; none: there are no more.
  std::optional<uint64_t> key() const {
    return at_ < block_.size() ? std::optional(block_[at_]) : std::nullopt;
  }
  // Moves to the next key. REQUIRES: there is a key. Errors: kDataLoss  the file ends early.
  absl::Status Next();

 private:
  RowKeyReader(std::string path, RegularFile file, int64_t offset, int64_t count)
      : path_(std::move(path)), file_(std::move(file)), offset_(offset), left_(count) {}

  absl::Status ReadBlock();

  std::string path_;
  RegularFile file_;
  int64_t offset_;  // Offset in the file, behind the block.
  int64_t left_;    // Keys behind the block.
  std::vector<uint64_t> block_;
  size_t at_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TENSOR_SAFETENSORS_ROW_KEY_READER_H_
