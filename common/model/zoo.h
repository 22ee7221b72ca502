// Zoo: the models that a job may ask for by name, written out as layers.
//
//   softmax_regression  fc classes
//   mlp                 fc 256, relu, fc 128, relu, fc classes
//   lenet               conv 20 5x5, max pool 2, conv 50 5x5, max pool 2, fc 500, relu, fc classes
//   resnet20            He et al. 2015 (arXiv 1512.03385) section 4.2 with n = 3: 3x3 conv 16,
//                       three stages of three blocks with 16, 32 and 64 filters, global average
//                       pooling, fc classes. Where the size changes the shortcut is a 1x1
//                       convolution of stride 2 (the paper's option B).
//   resnet18, resnet50  The same paper's section 4.1, as torchvision builds them (resnet50 is its
//                       v1.5: the stride is in the block's 3x3 convolution): 7x7 conv 64 of stride
//                       2, 3x3 max pool of stride 2, four stages, global average pooling, fc
//                       classes. Images below 64 pixels have the usual CIFAR form: a 3x3 conv 64
//                       of stride 1 and no max pool before the stages.
//   vgg16               Simonyan and Zisserman 2014 (arXiv 1409.1556), configuration D, without
//                       batch normalisation: 13 3x3 convs with max pool 2 after five groups, fc
//                       4096 twice with dropout 0.5, fc classes. At 224x224 it is torchvision's;
//                       for other sizes only torchvision's pools to 7x7 before the first fc.
//
// resnet18, resnet50 and vgg16 start with torchvision's values: convolutions normal by fan out,
// vgg16's fully connected weights normal with standard deviation 0.01, its biases 0. The others
// start with the layers' defaults (plan_model.h).
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_MODEL_ZOO_H_
#define CAPSTAN_COMMON_MODEL_ZOO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/model_plan.h"
#include "proto/job.pb.h"

namespace capstan {

// All model names, in alphabetical order.
std::vector<std::string> ZooNames();

// The layers of model `name` for samples of shape `input`. PlanModel checks whether they fit it.
// REQUIRES: 1 <= classes <= 2^31 - 1.
// Errors: kInvalidArgument  no such model; the message lists those that are known.
absl::StatusOr<std::vector<v1::Layer>> ExpandZoo(absl::string_view name, const SampleShape& input,
                                                 int64_t classes);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_MODEL_ZOO_H_
