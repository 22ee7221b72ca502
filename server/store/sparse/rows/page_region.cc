#include "server/store/sparse/rows/page_region.h"

#include <sys/mman.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace capstan::server {

absl::StatusOr<PageRegion> PageRegion::Map(size_t bytes, size_t small_bytes) {
  const size_t mapped_bytes = bytes + kHugePage;
  void* const mapped =
      ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  }
  PageRegion region;
  region.mapped_ = mapped;
  region.mapped_bytes_ = mapped_bytes;
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
  region.data_ = static_cast<char*>(mapped) + (aligned - address);
  // A system without huge pages refuses, which does no harm.
  if (bytes > small_bytes) {
    ::madvise(region.data_ + small_bytes, bytes - small_bytes, MADV_HUGEPAGE);
  }
  return region;
}

PageRegion::~PageRegion() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

}  // namespace capstan::server
