#include "common/observability/printable.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/observability/json_quote.h"
#include "common/observability/utf8.h"

namespace capstan {
namespace {

// Returns the code point of a whole UTF-8 sequence of up to 3 bytes, or 0 for a longer one.
uint32_t CodeOf(std::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 2) return (byte(0) & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
  if (sequence.size() != 3) return 0;
  return (byte(0) & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
}

// Whether a code point above ASCII controls a terminal, begins a line, or sets a direction.
bool IsControl(uint32_t code) {
  return (code >= 0x80 && code <= 0x9F) || code == 0x061C || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string Printable(std::string_view text, Lines lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    const std::string_view sequence = text.substr(0, length == 0 ? 1 : length);
    const char first = text.front();
    if (length == 0) {
      absl::StrAppend(&out, absl::StrFormat("\\x%02x", static_cast<unsigned char>(first)));
    } else if (length > 1) {
      const uint32_t code = CodeOf(sequence);
      if (IsControl(code)) {
        absl::StrAppend(&out, absl::StrFormat("\\u%04x", code));
      } else {
        out.append(sequence);
      }
    } else if (lines == Lines::kMany && (first == '\n' || first == '\t')) {
      out.push_back(first);
    } else if (const std::string escape = ControlEscape(first); !escape.empty()) {
      out.append(escape);
    } else {
      out.push_back(first);
    }
    text.remove_prefix(sequence.size());
  }
  return out;
}

}  // namespace capstan
