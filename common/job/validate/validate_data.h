// Checks of a job's data: ranges of fields, which fields a format has, which models train on it.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_DATA_H_
#define CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_DATA_H_

#include "common/job/fields/field_checker.h"
#include "proto/job.pb.h"

namespace capstan {

// Channels of an image in `format`, the length of augmentation.mean and .std. 0: no images.
int ImageChannels(v1::Data::Format format);

void ValidateData(const v1::Data& data, FieldChecker check);

// Images and layers belong together, as do examples and sparse models, and text and skip-gram.
// `check` is that of the job.
void ValidateModelFitsData(const v1::JobSpec& spec, FieldChecker check);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_DATA_H_
