// TextParser: turns plain text into sequences of words, as word2vec and GloVe need them.
//
// A word is the text between whitespace; its key is HashFeature(0, word), its value 1, its field 0.
// Keys are in the order of the words, and repeated words repeat them. A line is a sequence, without
// a label: a line of more than `words_max` words is cut into several examples, a line without words
// gives none. Text that is one endless line (text8) is read in pieces of about `window_bytes`.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_PARSERS_TEXT_PARSER_H_
#define CAPSTAN_COMMON_EXAMPLES_PARSERS_TEXT_PARSER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/examples/example_batch.h"
#include "common/examples/parsers/line_parser.h"

namespace capstan {

class TextParser final : public LineParser {
 public:
  struct Options {
    int64_t words_max = 1000;          // Words of an example, >= 1. 1,000 as in word2vec.c.
    int64_t window_bytes = 64 * 1024;  // >= 1. Lines are cut at whitespace about this often.
    uint64_t hash_buckets = 0;         // Keys are folded into it. 0: full 64 bits.
  };
  // REQUIRES: options in range (asserted).
  explicit TextParser(const Options& options);

  // Never fails: all bytes are text.
  absl::Status Parse(absl::string_view line, ExampleBatch* batch) override;

  int64_t window_bytes() const override { return options_.window_bytes; }

 private:
  const Options options_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_PARSERS_TEXT_PARSER_H_
