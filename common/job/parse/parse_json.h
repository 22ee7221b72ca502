// ParseJsonJob: parses a job from JSON (protobuf's mapping), with the position of every field and
// every error. Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_JOB_PARSE_PARSE_JSON_H_
#define CAPSTAN_COMMON_JOB_PARSE_PARSE_JSON_H_

#include <string>

#include "common/job/fields/field_positions.h"

namespace capstan {

// Keys are field names (batch_size) or their JSON form (batchSize). Unknown and repeated keys are
// errors. Never fails otherwise: the result's `errors` say what is wrong.
ParsedJob ParseJsonJob(const std::string& text);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_PARSE_PARSE_JSON_H_
