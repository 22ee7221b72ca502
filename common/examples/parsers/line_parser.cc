#include "common/examples/parsers/line_parser.h"

#include <cstddef>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace capstan {
namespace {

constexpr size_t kQuotedBytesMax = 40;

}  // namespace

absl::Status LineParser::CheckHeader(absl::string_view) { return absl::OkStatus(); }

std::string Quoted(absl::string_view text) {
  const bool cut = text.size() > kQuotedBytesMax;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kQuotedBytesMax)), cut ? "...'" : "'");
}

std::string Described(absl::string_view text) {
  return absl::StrCat("text of ", text.size(), text.size() == 1 ? " byte" : " bytes");
}

}  // namespace capstan
