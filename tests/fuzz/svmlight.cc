// Lines of SVMlight's format: each gives examples, or an error and nothing else (lines.h).
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/examples/parsers/svmlight_parser.h"
#include "tests/fuzz/lines.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  SvmlightParser parser;
  CheckLines(parser, absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}

}  // namespace capstan::fuzz
