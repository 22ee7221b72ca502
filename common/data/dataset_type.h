// Dataset: labelled images in memory, as they stood in the files (bytes, NHWC).
//
// Thread safety: immutable after loading; safe to read from many threads.
#ifndef CAPSTAN_COMMON_DATA_DATASET_TYPE_H_
#define CAPSTAN_COMMON_DATA_DATASET_TYPE_H_

#include <cstdint>
#include <vector>

#include "common/model/model_plan.h"

namespace capstan {

struct Dataset {
  SampleShape shape;  // Shape of one image.
  int64_t count = 0;  // Images.
  // If labels are classes, how many there are: labels are in [0, classes). If labels are numbers,
  // how many an image has.
  int64_t classes = 0;
  std::vector<uint8_t> pixels;  // [count, h, w, c].
  std::vector<uint8_t> labels;  // [count]; empty if labels are numbers.
  std::vector<float> targets;   // [count, classes]: labels that are numbers; else empty.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_DATA_DATASET_TYPE_H_
