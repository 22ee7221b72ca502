#include "common/data/idx.h"

#include <array>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr uint32_t kImagesMagic = 0x00000803;
constexpr uint32_t kLabelsMagic = 0x00000801;
constexpr size_t kWordBytes = 4;

uint32_t BigEndianWord(const std::vector<uint8_t>& bytes, size_t word) {
  const uint8_t* p = bytes.data() + kWordBytes * word;
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

// Checks the header (magic and `dimensions.size()` sizes) against the file's bytes, fills
// `dimensions` and removes the header from `bytes`.
absl::Status TakeHeader(absl::string_view name, uint32_t magic, absl::string_view what,
                        absl::Span<uint32_t> dimensions, std::vector<uint8_t>& bytes) {
  const size_t header_bytes = kWordBytes * (1 + dimensions.size());
  if (bytes.size() < kWordBytes) {
    return absl::DataLossError(absl::StrFormat("%s: %d bytes, expected an IDX header of %d", name,
                                               bytes.size(), header_bytes));
  }
  if (BigEndianWord(bytes, 0) != magic) {
    return absl::DataLossError(absl::StrFormat(
        "%s: magic number of another format, expected 0x%08x (IDX %s)", name, magic, what));
  }
  if (bytes.size() < header_bytes) {
    return absl::DataLossError(absl::StrFormat("%s: %d bytes, expected an IDX header of %d", name,
                                               bytes.size(), header_bytes));
  }
  uint64_t expected = 1;
  bool overflow = false;
  for (size_t i = 0; i < dimensions.size(); ++i) {
    dimensions[i] = BigEndianWord(bytes, i + 1);
    overflow = __builtin_mul_overflow(expected, uint64_t{dimensions[i]}, &expected) || overflow;
  }
  const std::string sizes = absl::StrJoin(dimensions, " x ");
  for (const uint32_t dimension : dimensions) {
    if (dimension == 0) {
      return absl::DataLossError(
          absl::StrCat(name, ": the header says ", sizes, " ", what, ", expected at least 1 each"));
    }
  }
  const uint64_t found = bytes.size() - header_bytes;
  if (overflow || found != expected) {
    return absl::DataLossError(absl::StrCat(
        name, ": ", found, " bytes after the header, expected ", sizes,
        overflow ? "" : absl::StrCat(" = ", expected), ": ",
        overflow || found < expected ? "truncated, or a wrong header" : "trailing bytes"));
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header_bytes));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<IdxImages> ParseIdxImages(absl::string_view name, std::vector<uint8_t> bytes) {
  std::array<uint32_t, 3> dimensions;
  CAPSTAN_RETURN_IF_ERROR(
      TakeHeader(name, kImagesMagic, "images", absl::MakeSpan(dimensions), bytes));
  return IdxImages{
      .count = dimensions[0], .h = dimensions[1], .w = dimensions[2], .pixels = std::move(bytes)};
}

absl::StatusOr<std::vector<uint8_t>> ParseIdxLabels(absl::string_view name,
                                                    std::vector<uint8_t> bytes, int64_t classes) {
  std::array<uint32_t, 1> dimensions;
  CAPSTAN_RETURN_IF_ERROR(
      TakeHeader(name, kLabelsMagic, "labels", absl::MakeSpan(dimensions), bytes));
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] >= classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": label number ", i, " is out of range, expected 0 to ", classes - 1));
    }
  }
  return bytes;
}

}  // namespace capstan
