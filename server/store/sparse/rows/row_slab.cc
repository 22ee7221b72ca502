#include "server/store/sparse/rows/row_slab.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

constexpr uint64_t kBlockBytes = 32 << 20;

}  // namespace

RowSlab::RowSlab(int64_t row_bytes)
    : row_bytes_(static_cast<uint64_t>(row_bytes)),
      block_bits_(static_cast<int>(std::bit_width(kBlockBytes / row_bytes_)) - 1),
      block_mask_((RowNumber{1} << block_bits_) - 1) {}

absl::StatusOr<RowNumber> RowSlab::Allocate(uint64_t key) {
  RowNumber row = 0;
  if (!free_.empty()) {
    row = free_.back();
    free_.pop_back();
  } else {
    if (end_ == static_cast<uint64_t>(blocks_.size()) << block_bits_) {
      CAPSTAN_RETURN_IF_ERROR(AddBlock());
    }
    row = static_cast<RowNumber>(end_++);
  }
  std::memcpy(At(row), &key, sizeof(key));
  return row;
}

void RowSlab::Free(RowNumber row) { free_.push_back(row); }

absl::Status RowSlab::AddBlock() {
  if (end_ + (uint64_t{1} << block_bits_) > kRowsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a shard of a sparse table has ", end_, " rows: give the table more buckets"));
  }
  // A small table takes small pages.
  const size_t small_bytes = blocks_.empty() ? PageRegion::kHugePage : 0;
  CAPSTAN_ASSIGN_OR_RETURN(PageRegion block,
                           PageRegion::Map(row_bytes_ << block_bits_, small_bytes));
  blocks_.push_back(std::move(block));
  return absl::OkStatus();
}

}  // namespace capstan::server
