// Plain text: each line gives sequences of at most words_max words, and never an error (lines.h).
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/examples/parsers/text_parser.h"
#include "tests/fuzz/lines.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  TextParser parser(TextParser::Options{.words_max = 3});
  CheckLines(parser, absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}

}  // namespace capstan::fuzz
