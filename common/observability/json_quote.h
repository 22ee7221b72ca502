// Text as JSON string literals (RFC 8259, section 7), for logs, traces, reports and safetensors.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_OBSERVABILITY_JSON_QUOTE_H_
#define CAPSTAN_COMMON_OBSERVABILITY_JSON_QUOTE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace capstan {

// `text` with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string JsonQuote(absl::string_view text);

// The escape of a control character; empty if `c` is printed as it is.
std::string ControlEscape(char c);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_OBSERVABILITY_JSON_QUOTE_H_
