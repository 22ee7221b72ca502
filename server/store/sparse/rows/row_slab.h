// RowSlab: rows of one size, each with its key in front, in large blocks of memory.
//
//   row = key (8 bytes), then row_bytes - 8 bytes that are the caller's
//
// A row stays where it is until it is freed. A block takes no memory from the system before its
// rows are written.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_ROWS_ROW_SLAB_H_
#define CAPSTAN_SERVER_STORE_SPARSE_ROWS_ROW_SLAB_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/sparse/rows/page_region.h"

namespace capstan::server {

// Number of a row in its slab.
using RowNumber = uint32_t;

class RowSlab {
 public:
  static constexpr uint64_t kRowsMax = (uint64_t{1} << 32) - 2;

  // REQUIRES: row_bytes is a multiple of 8, 8 to 1 MiB.
  explicit RowSlab(int64_t row_bytes);

  // A row for `key`, its other bytes unspecified.
  // Errors: kResourceExhausted  no memory, or kRowsMax rows.
  absl::StatusOr<RowNumber> Allocate(uint64_t key);
  void Free(RowNumber row);

  char* At(RowNumber row) {
    return blocks_[row >> block_bits_].data() + (row & block_mask_) * row_bytes_;
  }
  const char* At(RowNumber row) const { return const_cast<RowSlab*>(this)->At(row); }
  uint64_t KeyAt(RowNumber row) const {
    uint64_t key;
    std::memcpy(&key, At(row), sizeof(key));
    return key;
  }

  int64_t rows() const { return static_cast<int64_t>(end_ - free_.size()); }
  // The memory of all rows that were ever in use.
  int64_t bytes() const { return static_cast<int64_t>(end_ * row_bytes_); }

 private:
  absl::Status AddBlock();

  uint64_t row_bytes_;
  int block_bits_;  // A block has 2^block_bits_ rows.
  RowNumber block_mask_;
  uint64_t end_ = 0;  // Rows behind it have never been in use.
  std::vector<PageRegion> blocks_;
  std::vector<RowNumber> free_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_ROWS_ROW_SLAB_H_
