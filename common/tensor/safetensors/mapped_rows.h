// MappedRows: finds rows of a file of rows (row_file.h) by key, without reading it whole.
//
// The file is mapped, and its keys are in ascending order of their hash (common/sparse/key_hash.h),
// so that a key is found by searching: memory holds only what the operating system keeps of the
// file while it has room.
// Thread safety: constant after construction; safe to read from many threads.
#ifndef CAPSTAN_COMMON_TENSOR_SAFETENSORS_MAPPED_ROWS_H_
#define CAPSTAN_COMMON_TENSOR_SAFETENSORS_MAPPED_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace capstan {

class MappedRows {
 public:
  // Looks at every key once. Nobody may shorten the file while it is in use.
  // Errors: kNotFound, kPermissionDenied  those of OpenRegularFile.
  //         kDataLoss  it is no file of rows, is shorter than it says, or its keys are not in
  //                    ascending order of their hash, each once.
  static absl::StatusOr<MappedRows> Open(const std::string& path);
  ~MappedRows();
  MappedRows(MappedRows&& other) noexcept;
  MappedRows(const MappedRows&) = delete;
  MappedRows& operator=(const MappedRows&) = delete;

  int64_t count() const { return static_cast<int64_t>(keys_.size()); }
  int64_t dim() const { return dim_; }  // Floats a row.

  // The row of `key`, [dim]; empty: the file has none. Valid as long as this object.
  absl::Span<const float> Find(uint64_t key) const;

 private:
  MappedRows(void* begin, size_t bytes) : begin_(begin), bytes_(bytes) {}

  absl::Status FindTensors(const std::string& path);
  absl::Status CheckOrder(const std::string& path) const;

  void* begin_;
  size_t bytes_;
  absl::Span<const uint64_t> keys_;
  absl::Span<const float> rows_;
  int64_t dim_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TENSOR_SAFETENSORS_MAPPED_ROWS_H_
