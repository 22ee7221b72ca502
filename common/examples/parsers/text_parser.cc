#include "common/examples/parsers/text_parser.h"

#include <cassert>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "common/examples/feature_hash.h"

namespace capstan {
namespace {

bool IsSpace(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }

}  // namespace

TextParser::TextParser(const Options& options) : options_(options) {
  assert(options.words_max >= 1 && options.window_bytes >= 1);
}

absl::Status TextParser::Parse(absl::string_view line, ExampleBatch* batch) {
  int64_t words = 0;  // Words of the open example.
  size_t i = 0;
  while (true) {
    while (i < line.size() && IsSpace(line[i])) ++i;
    if (i == line.size()) break;
    const size_t begin = i;
    while (i < line.size() && !IsSpace(line[i])) ++i;
    const uint64_t key = HashFeature(/*field=*/0, line.substr(begin, i - begin));
    batch->AddFeature(FoldKey(key, options_.hash_buckets), 1.0f, /*field=*/0);
    if (++words == options_.words_max) {
      batch->Finish(/*label=*/0);
      words = 0;
    }
  }
  if (words > 0) batch->Finish(/*label=*/0);
  return absl::OkStatus();
}

}  // namespace capstan
