#include "common/tensor/safetensors/mapped_rows.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/sparse/key_hash.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/files/regular_file.h"
#include "common/storage/little_endian.h"
#include "common/tensor/safetensors/safetensors_header.h"

namespace capstan {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are used as they lie in files");

}  // namespace

absl::StatusOr<MappedRows> MappedRows::Open(const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(path));
  const auto bytes = static_cast<size_t>(file.bytes);
  if (bytes < kSafetensorsLengthBytes) {
    return absl::DataLossError(absl::StrCat(path, ": ", bytes, " bytes, expected a file of rows"));
  }
  void* const begin = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd.get(), 0);
  if (begin == MAP_FAILED) return absl::ErrnoToStatus(errno, path);
  MappedRows rows(begin, bytes);
  CAPSTAN_RETURN_IF_ERROR(rows.FindTensors(path));
  CAPSTAN_RETURN_IF_ERROR(rows.CheckOrder(path));
  return rows;
}

MappedRows::~MappedRows() {
  if (begin_ != nullptr) munmap(begin_, bytes_);
}

MappedRows::MappedRows(MappedRows&& other) noexcept
    : begin_(std::exchange(other.begin_, nullptr)),
      bytes_(other.bytes_),
      keys_(other.keys_),
      rows_(other.rows_),
      dim_(other.dim_) {}

absl::Status MappedRows::FindTensors(const std::string& path) {
  const absl::string_view file(static_cast<const char*>(begin_), bytes_);
  const uint64_t header_bytes = GetLe64(file, 0);
  if (header_bytes > bytes_ - kSafetensorsLengthBytes) {
    return absl::DataLossError(absl::StrCat(path, ": a header of ", header_bytes,
                                            " bytes, expected that of a file of ", bytes_));
  }
  const auto data = static_cast<int64_t>(kSafetensorsLengthBytes + header_bytes);
  const auto entries = DecodeSafetensorsHeader(file.substr(kSafetensorsLengthBytes, header_bytes),
                                               static_cast<int64_t>(bytes_) - data);
  if (!entries.ok()) return Annotate(entries.status(), path);
  const std::vector<TensorEntry>& found = *entries;
  // RowFileWriter writes the keys, then the rows, each aligned to its numbers.
  const bool fits = found.size() == 2 && found[0].name == "keys" && found[0].dtype == Dtype::kU64 &&
                    found[0].shape.size() == 1 && found[1].name == "rows" &&
                    found[1].dtype == Dtype::kF32 && found[1].shape.size() == 2 &&
                    found[1].shape[0] == found[0].shape[0] && data % BytesOf(Dtype::kU64) == 0;
  if (!fits) {
    return absl::DataLossError(absl::StrCat(
        path, ": expected a file of rows: \"keys\" of U64 [n], then \"rows\" of F32 [n, dim]"));
  }
  dim_ = found[1].shape[1];
  const auto count = static_cast<size_t>(found[0].shape[0]);
  keys_ = {reinterpret_cast<const uint64_t*>(file.data() + data + found[0].begin), count};
  rows_ = {reinterpret_cast<const float*>(file.data() + data + found[1].begin),
           count * static_cast<size_t>(dim_)};
  return absl::OkStatus();
}

absl::Status MappedRows::CheckOrder(const std::string& path) const {
  for (size_t i = 1; i < keys_.size(); ++i) {
    if (KeyHash(keys_[i - 1]) < KeyHash(keys_[i])) continue;
    return absl::DataLossError(absl::StrCat(path, ": key ", keys_[i], " stands behind key ",
                                            keys_[i - 1],
                                            ", expected ascending order of their hash"));
  }
  return absl::OkStatus();
}

absl::Span<const float> MappedRows::Find(uint64_t key) const {
  const uint64_t hash = KeyHash(key);
  const auto found =
      std::lower_bound(keys_.begin(), keys_.end(), hash,
                       [](uint64_t there, uint64_t wanted) { return KeyHash(there) < wanted; });
  if (found == keys_.end() || *found != key) return {};
  const auto dim = static_cast<size_t>(dim_);
  return rows_.subspan(static_cast<size_t>(found - keys_.begin()) * dim, dim);
}

}  // namespace capstan
