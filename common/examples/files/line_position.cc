#include "common/examples/files/line_position.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/examples/streams/input_file.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

}  // namespace

absl::StatusOr<int64_t> CountNewlines(const std::string& path, int64_t end) {
  if (end == 0) return 0;
  CAPSTAN_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  std::vector<char> buffer(static_cast<size_t>(std::min(end, kChunkBytes)));
  int64_t newlines = 0;
  for (int64_t offset = 0; offset < end; offset += kChunkBytes) {
    const auto wanted = static_cast<size_t>(std::min(end - offset, kChunkBytes));
    const absl::Span<char> chunk = absl::MakeSpan(buffer).first(wanted);
    CAPSTAN_ASSIGN_OR_RETURN(const size_t got, file.ReadAt(offset, chunk));
    if (got < wanted) {
      return absl::DataLossError(absl::StrCat(path, ": ", offset + static_cast<int64_t>(got),
                                              " bytes, expected at least ", end,
                                              ": it changed while it was read"));
    }
    newlines += std::count(chunk.begin(), chunk.end(), '\n');
  }
  return newlines;
}

std::string Locate(const std::string& path, const LinePosition& position) {
  return Locate(path, position, CountNewlines(path, position.base));
}

std::string Locate(const std::string& path, const LinePosition& position,
                   const absl::StatusOr<int64_t>& newlines_before) {
  if (newlines_before.ok()) {
    return absl::StrCat(path, ":", *newlines_before + position.newlines + 1);
  }
  return absl::StrCat(path, ": line ", position.newlines + 1, " after byte ", position.base);
}

}  // namespace capstan
