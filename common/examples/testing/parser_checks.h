// Parser checks: what holds for every LineParser, whatever bytes it is given. For tests.
//
// Thread safety: pure functions; each fails the test.
#ifndef CAPSTAN_COMMON_EXAMPLES_TESTING_PARSER_CHECKS_H_
#define CAPSTAN_COMMON_EXAMPLES_TESTING_PARSER_CHECKS_H_

#include <string>
#include <vector>

#include "common/examples/example_batch.h"
#include "common/examples/parsers/line_parser.h"

namespace capstan::testing {

// The invariants of example_batch.h.
void CheckInvariants(const ExampleBatch& batch);

// Bit by bit.
bool SameExamples(const ExampleBatch& a, const ExampleBatch& b);

// Hands the parser each line of `seeds`, cut at every position, with bytes changed, inserted and
// removed at every position, and lines of random bytes. Each must succeed, or leave the batch as
// it was and say something; both leave it whole.
void CheckSurvives(LineParser& parser, const std::vector<std::string>& seeds);

// Parses one line that must be right.
ExampleBatch ParseLine(LineParser& parser, absl::string_view line);

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_EXAMPLES_TESTING_PARSER_CHECKS_H_
