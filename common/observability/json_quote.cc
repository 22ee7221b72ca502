#include "common/observability/json_quote.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/observability/utf8.h"

namespace capstan {

std::string JsonQuote(absl::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength({text.data(), text.size()});
    if (length == 0) {
      out.append("\\ufffd");
      text.remove_prefix(1);
      continue;
    }
    const char c = text.front();
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (const std::string escape = ControlEscape(c); !escape.empty()) {
      out.append(escape);
    } else {
      absl::StrAppend(&out, text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  out.push_back('"');
  return out;
}

std::string ControlEscape(char c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  const unsigned char code = static_cast<unsigned char>(c);
  return code < 0x20 || code == 0x7F ? absl::StrFormat("\\u%04x", code) : "";
}

}  // namespace capstan
