// Dataset: labelled images in memory, as they stood in the files (bytes, NHWC), and their loading.
//
// Thread safety: immutable after loading; safe to read from many threads.
#ifndef CAPSTAN_COMMON_DATA_DATASET_H_
#define CAPSTAN_COMMON_DATA_DATASET_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_plan.h"
#include "proto/job.pb.h"

namespace capstan {

struct Dataset {
  SampleShape shape;            // Of one image.
  int64_t count = 0;            // Images.
  int64_t classes = 0;          // Of the format: labels are in [0, classes).
  std::vector<uint8_t> pixels;  // [count, h, w, c].
  std::vector<uint8_t> labels;  // [count].
};

// Reads a split whole, checking magic numbers, sizes, truncation and labels.
// Errors: kNotFound            a file does not exist.
//         kPermissionDenied    it cannot be read.
//         kInvalidArgument     the format's paths are missing from the split, or label out of
//                              range.
//         kDataLoss            wrong magic, truncated, trailing bytes, images and labels that
//                              differ in number.
// Every message names the file and says what was found and what was expected.
absl::StatusOr<Dataset> LoadDataset(v1::Data::Format format, const v1::Split& split);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_DATA_DATASET_H_
