// Zoo: models that a job may ask for by name, written out as layers.
//
//   softmax_regression  fc classes
//   mlp                 fc 256, relu, fc 128, relu, fc classes
//   lenet               conv 20 5x5, max pool 2, conv 50 5x5, max pool 2, fc 500, relu, fc classes
//   resnet20            He et al. 2015 (arXiv 1512.03385) section 4.2 with n = 3: 3x3 conv 16,
//                       three stages of three blocks with 16, 32 and 64 filters, global average
//                       pooling, fc classes. Where the size changes the shortcut is a 1x1
//                       convolution of stride 2 (the paper's option B).
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_MODEL_ZOO_H_
#define CAPSTAN_COMMON_MODEL_ZOO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace capstan {

// In alphabetical order.
std::vector<std::string> ZooNames();

// The layers of model `name`. REQUIRES: 1 <= classes <= 2^31 - 1.
// Errors: kInvalidArgument  no such model; the message lists those that are known.
absl::StatusOr<std::vector<v1::Layer>> ExpandZoo(absl::string_view name, int64_t classes);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_MODEL_ZOO_H_
