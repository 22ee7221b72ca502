// PlanModel: turns a job's model into a plan with every shape known; an error names the layer.
//
// Parameters start as in PyTorch's defaults: weights and biases of convolutions and fully connected
// layers uniform in [-b, b) with b = 1 / sqrt(inputs of one output) unless the layer says another
// `initial`, batch normalisation with scale 1 and shift 0, embeddings normal with standard
// deviation 1. Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_MODEL_PLAN_MODEL_H_
#define CAPSTAN_COMMON_MODEL_PLAN_MODEL_H_

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/model_plan.h"
#include "proto/job.pb.h"

namespace capstan {

inline constexpr int kLayersMax = 10'000;
inline constexpr int kLayerNameBytesMax = 128;
inline constexpr int64_t kClassesMin = 2;
inline constexpr int64_t kClassesMax = 1'000'000;
inline constexpr int64_t kEmbeddingRowsMax = int64_t{1} << 24;  // Row numbers come as fp32.

// Returns whether a layer may have that name, which has letters, digits, '_', '.' and '-'.
bool IsLayerName(absl::string_view name);

// "convolution, max_pooling, ...": the fields of Layer.kind.
std::string LayerKindNames();

// The field of Layer.kind that the layer has, with its name and options. Null: it has none.
const google::protobuf::FieldDescriptor* LayerKindField(const v1::Layer& layer);

// The loss behind the last layer, with defaults filled in and without weights.
PlannedLoss PlanLoss(const v1::Model::Loss& loss);

// Plans `model` for samples of shape `input`; `classes` is the number of classes that it must
// distinguish (the caller decides between model.classes and the data format's), or of the numbers
// of a label. Its loss has no weights: the job's training has them.
// Errors: kInvalidArgument  anything about the model that does not fit; the message names the
//                           layer, the field, its value and what was expected.
absl::StatusOr<ModelPlan> PlanModel(const v1::Model& model, SampleShape input, int64_t classes);

// "28x28x1" for an image, "784" for a vector.
std::string ToString(const SampleShape& shape);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_MODEL_PLAN_MODEL_H_
