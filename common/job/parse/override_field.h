// OverrideField: sets one field of a job by its path, as `--set training.epochs=3` does.
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_JOB_PARSE_OVERRIDE_FIELD_H_
#define CAPSTAN_COMMON_JOB_PARSE_OVERRIDE_FIELD_H_

#include <string>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace capstan {

// `path` is a field path ("model.layers[0].name"; an index must exist), `value` its value in text
// format; a string may be given without quotes, a message as "{...}". A list without an index
// becomes [value]. Errors: kInvalidArgument  names the part of the path that does not exist, with
// the nearest name, or the value and the type that was expected; the job is unchanged.
absl::Status OverrideField(const std::string& path, const std::string& value, v1::JobSpec* spec);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_PARSE_OVERRIDE_FIELD_H_
