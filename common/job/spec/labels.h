// Labels: the labels and the note that people give a job (JobSpec.labels, JobSpec.note).
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_JOB_SPEC_LABELS_H_
#define CAPSTAN_COMMON_JOB_SPEC_LABELS_H_

#include <string>

#include "common/job/fields/field_checker.h"
#include "google/protobuf/map.h"

namespace capstan {

using LabelMap = google::protobuf::Map<std::string, std::string>;

// Reports each label, and the note, that is not as proto/job.proto says.
void ValidateLabels(const LabelMap& labels, const std::string& note, FieldChecker check);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_SPEC_LABELS_H_
