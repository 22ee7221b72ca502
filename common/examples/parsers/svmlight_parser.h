// SvmlightParser: parses lines of the form `label index:value index:value ... # comment`.
//
// This is the format of SVMlight and LIBSVM. Indices ascend and are the keys; all have field 0. The
// label is any finite number and kept as it is: the loss decides whether -1 or 0 stands for "no".
// `qid:number` after the label is checked and dropped, since no model ranks. Lines that are blank,
// or a comment only, hold no example. Blanks and tabs separate the parts.
// Reference: https://www.cs.cornell.edu/people/tj/svm_light/ ("Input file format").
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_PARSERS_SVMLIGHT_PARSER_H_
#define CAPSTAN_COMMON_EXAMPLES_PARSERS_SVMLIGHT_PARSER_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/examples/example_batch.h"
#include "common/examples/parsers/line_parser.h"

namespace capstan {

class SvmlightParser final : public LineParser {
 public:
  // Errors (*batch is unchanged; the message gives the byte of the line, counted from 1):
  //   kInvalidArgument  no label; something that is no index:value; an index above 2^64 - 1 or not
  //                     above the one before; a label or value that is no finite float.
  absl::Status Parse(absl::string_view line, ExampleBatch* batch) override;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_PARSERS_SVMLIGHT_PARSER_H_
