// UTF-8 checks: protobuf strings and JSON must hold nothing else. Pure.
#ifndef CAPSTAN_COMMON_OBSERVABILITY_UTF8_H_
#define CAPSTAN_COMMON_OBSERVABILITY_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace capstan {

// Bytes of the UTF-8 sequence that `text` starts with, or 0 if it starts with none (overlong forms,
// surrogates and code points above U+10FFFF are none). REQUIRES: text is not empty.
size_t Utf8SequenceLength(std::string_view text);

// `text` with every byte that is part of no UTF-8 sequence replaced by '?'. It keeps its length.
std::string ToValidUtf8(std::string_view text);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_OBSERVABILITY_UTF8_H_
