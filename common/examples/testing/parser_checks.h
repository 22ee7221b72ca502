// Parser checks: tests of the properties that every LineParser has, for any bytes.
//
// Thread safety: pure functions, which fail the test that calls them.
#ifndef CAPSTAN_COMMON_EXAMPLES_TESTING_PARSER_CHECKS_H_
#define CAPSTAN_COMMON_EXAMPLES_TESTING_PARSER_CHECKS_H_

#include <string>
#include <vector>

#include "common/examples/example_batch.h"
#include "common/examples/parsers/line_parser.h"

namespace capstan::testing {

// Checks the invariants of example_batch.h.
void CheckInvariants(const ExampleBatch& batch);

// Compares bit by bit.
bool SameExamples(const ExampleBatch& a, const ExampleBatch& b);

// Gives the parser each line of `seeds`, cut at every position, with bytes changed, inserted and
// removed at every position, and lines of random bytes. Each call must succeed, or return a message
// and leave the batch as it was; the invariants of the batch hold after both.
void CheckSurvives(LineParser& parser, const std::vector<std::string>& seeds);

// Parses one line that must be right.
ExampleBatch ParseLine(LineParser& parser, absl::string_view line);

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_EXAMPLES_TESTING_PARSER_CHECKS_H_
