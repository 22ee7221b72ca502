// ParseTextJob: parses a job from protobuf's text format, with the position of every field and
// every error. Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_JOB_PARSE_PARSE_TEXT_H_
#define CAPSTAN_COMMON_JOB_PARSE_PARSE_TEXT_H_

#include <string>

#include "common/job/fields/field_positions.h"

namespace capstan {

// Unknown fields are errors, and all are reported up to kDiagnosticsMax. A syntax error and nesting
// above kNestingMax levels end the reading. Never fails otherwise: the result's `errors` say what
// is wrong.
ParsedJob ParseTextJob(const std::string& text);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_PARSE_PARSE_TEXT_H_
