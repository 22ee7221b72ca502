// Checks that hold for every parser of examples, whatever lines it is given.
//
// Thread safety: functions of their arguments.
#ifndef CAPSTAN_TESTS_FUZZ_LINES_H_
#define CAPSTAN_TESTS_FUZZ_LINES_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/examples/example_batch.h"
#include "common/examples/parsers/line_parser.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {

// The invariants of example_batch.h, and fields that the parser has.
inline void CheckBatch(const ExampleBatch& batch, const LineParser& parser) {
  const auto rows = batch.row_begin();
  FUZZ_CHECK(rows.size() == batch.labels().size() + 1);
  FUZZ_CHECK(rows.front() == 0 && rows.back() == batch.value_count());
  for (size_t i = 1; i < rows.size(); ++i) FUZZ_CHECK(rows[i - 1] <= rows[i]);
  FUZZ_CHECK(batch.values().size() == batch.keys().size());
  FUZZ_CHECK(batch.fields().size() == batch.keys().size());
  FUZZ_CHECK(static_cast<int64_t>(batch.dense().size()) == batch.count() * parser.dense_columns());
  for (const int32_t field : batch.fields()) FUZZ_CHECK(field >= 0 && field < parser.field_count());
}

// Parses each line of `text`: it gives examples, or an error and nothing else.
inline void CheckLines(LineParser& parser, absl::string_view text) {
  ExampleBatch batch(parser.dense_columns());
  bool header = parser.has_header();
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const int64_t count = batch.count();
    const bool of_header = header;
    header = false;
    const absl::Status status = of_header ? parser.CheckHeader(line) : parser.Parse(line, &batch);
    if (!status.ok()) {
      FUZZ_CHECK(absl::IsInvalidArgument(status) && !status.message().empty());
      FUZZ_CHECK(batch.count() == count);
    }
    CheckBatch(batch, parser);
  }
}

}  // namespace capstan::fuzz

#endif  // CAPSTAN_TESTS_FUZZ_LINES_H_
