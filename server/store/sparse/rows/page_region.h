// PageRegion: zeroed memory from the system, in huge pages where the system has them, so that a
// random access costs no walk through the page table.
//
// A page takes memory once it is written: 2 MiB at a time, except in the first `small_bytes`, which
// stay in ordinary pages. Thread safety: a value.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_ROWS_PAGE_REGION_H_
#define CAPSTAN_SERVER_STORE_SPARSE_ROWS_PAGE_REGION_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"

namespace capstan::server {

class PageRegion {
 public:
  static constexpr size_t kHugePage = 2 << 20;

  // Errors: kResourceExhausted  no memory; names the bytes.
  static absl::StatusOr<PageRegion> Map(size_t bytes, size_t small_bytes = 0);

  PageRegion() = default;  // Empty.
  PageRegion(PageRegion&& other) noexcept { *this = std::move(other); }
  PageRegion& operator=(PageRegion&& other) noexcept {
    std::swap(mapped_, other.mapped_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~PageRegion();

  char* data() const { return data_; }  // Aligned to kHugePage.

 private:
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  char* data_ = nullptr;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_ROWS_PAGE_REGION_H_
