// ModelPlan: a model with every shape known and every parameter given its place in a table.
//
// PlanModel (common/model/plan_model.h) makes it from the job's model by inferring shapes layer by
// layer. The scheduler makes it to admit a job and lay out tables; a worker makes it to build its
// network; both get the same plan from the same job. Thread safety: values.
#ifndef CAPSTAN_COMMON_MODEL_MODEL_PLAN_H_
#define CAPSTAN_COMMON_MODEL_MODEL_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace capstan {

// The largest array that a kernel takes (kernels/op_check.h).
inline constexpr int64_t kArrayElementsMax = (int64_t{1} << 31) - 1;

// Shape of one sample (no batch dimension): an image [h, w, c], or a vector with h = w = 1.
struct SampleShape {
  int64_t h = 1, w = 1, c = 1;
  int64_t count() const { return h * w * c; }
  friend bool operator==(const SampleShape&, const SampleShape&) = default;
};

struct Initial {
  enum class Kind { kConstant, kUniform, kNormal };
  Kind kind = Kind::kConstant;
  float value = 0.0f;  // The constant, the bound of [-bound, bound), or the standard deviation.
};

// A named tensor in a table.
struct PlannedTensor {
  std::string name;            // "<layer>.weight", ".bias", ".running_mean", ".running_variance".
  std::vector<int64_t> shape;  // Its layout is that of op.h (convolution: OHWI).
  int64_t offset = 0;          // First element in its table.
  int64_t count = 0;
  Initial initial;
  float momentum = 0.0f;  // Statistics only: weight of a new batch.
};

// Stands for the network's input in PlannedLayer::inputs.
inline constexpr int kNetworkInput = -1;

struct PlannedLayer {
  std::string name;
  v1::Layer::KindCase kind = v1::Layer::KIND_NOT_SET;
  std::vector<int> inputs;  // Indices of layers before this one, or kNetworkInput.
  SampleShape in, out;      // Shapes of inputs[0] and of the output.
  int64_t kernel = 1, stride = 1, padding = 0;
  bool has_bias = false;  // Convolution, fully connected.
  float epsilon = 0.0f;   // Normalisations.
  float dropout_rate = 0.0f;
  int64_t rows = 0;        // Embedding.
  std::string activation;  // The kind's name in proto/job.proto; empty for other layers.
  // Indices in ModelPlan::parameters and ::statistics; -1: none.
  int weight = -1, bias = -1;  // Normalisations: scale and shift.
  int running_mean = -1, running_variance = -1;
};

// The loss behind the last layer; proto/job.proto has the formulas.
struct PlannedLoss {
  enum class Kind { kSoftmax, kSquared, kHuber, kQuantile, kSigmoid };
  Kind kind = Kind::kSoftmax;
  float parameter = 0.0f;  // Huber: delta. Quantile: q.
  // Training only. kSoftmax: one for each class. kSigmoid: one for each output, for labels that are
  // 1. Empty: all are 1.
  std::vector<float> weights = {};

  // True: a sample's label is a class. False: it has a number for each output.
  bool of_classes() const { return kind == Kind::kSoftmax; }
};

struct ModelPlan {
  SampleShape input;
  int64_t classes = 0;  // Values of the last layer's output: classes, or numbers of a label.
  PlannedLoss loss;
  std::vector<PlannedLayer> layers;
  std::vector<PlannedTensor> parameters;  // Table "parameters": trained by the job's optimizer.
  // Table "statistics": moving averages; empty without batch normalisation.
  std::vector<PlannedTensor> statistics;
  int64_t parameter_count = 0;  // Elements.
  int64_t statistic_count = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_MODEL_MODEL_PLAN_H_
