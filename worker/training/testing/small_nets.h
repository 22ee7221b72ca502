// Small models with every kind of layer between them, and batches of random numbers, for tests.
//
// Thread safety: values and pure functions.
#ifndef CAPSTAN_WORKER_TRAINING_TESTING_SMALL_NETS_H_
#define CAPSTAN_WORKER_TRAINING_TESTING_SMALL_NETS_H_

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "common/model/plan_model.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "proto/job.pb.h"
#include "worker/training/step/step_arrays.h"

namespace capstan::worker {

inline constexpr int64_t kSmallNetClasses = 5;

inline ModelPlan PlanSmallNet(const std::string& text, SampleShape input) {
  v1::Model model;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &model));
  REQUIRE_OK_AND_ASSIGN(ModelPlan plan, PlanModel(model, input, kSmallNetClasses));
  return plan;
}

// A batch that owns its memory.
struct Batch {
  std::vector<float> images;
  std::vector<int32_t> labels;
  BatchView view() const { return {images, labels}; }
};

inline Batch RandomBatch(const ModelPlan& plan, int64_t n, uint64_t seed = 5) {
  Batch batch;
  for (int64_t i = 0; i < n * plan.input.count(); ++i) {
    batch.images.push_back(2 * ToUnitFloat(PhiloxWord(seed, i)) - 1);
  }
  for (int64_t i = 0; i < n; ++i) {
    batch.labels.push_back(static_cast<int32_t>(PhiloxWord(seed + 1, i) % plan.classes));
  }
  return batch;
}

struct SmallNet {
  const char* name;
  const char* text;
  SampleShape input;
};

inline const SmallNet kSmallNets[] = {
    {"convolution with stride, padding and bias, then ReLU, fully connected",
     R"(
      layers { name: "c" convolution { filters: 4 kernel: 3 stride: 2 padding: 1 } }
      layers { name: "r" relu {} }
      layers { name: "f" fully_connected { units: 6 bias: false } }
      layers { name: "r2" relu {} }
      layers { name: "g" fully_connected { units: 5 } })",
     {7, 6, 2}},
    {"pooling of every kind",
     R"(
      layers { name: "c" convolution { filters: 4 kernel: 3 padding: 1 bias: false } }
      layers { name: "m" max_pooling { kernel: 3 stride: 2 padding: 1 } }
      layers { name: "d" convolution { filters: 4 kernel: 1 } }
      layers { name: "a" average_pooling { kernel: 3 stride: 1 padding: 1 } }
      layers { name: "e" convolution { filters: 6 kernel: 2 } }
      layers { name: "p" global_average_pooling {} }
      layers { name: "f" fully_connected { units: 5 } })",
     {8, 8, 3}},
    {"residual block with batch normalisation and projection",
     R"(
      layers { name: "c0" convolution { filters: 4 kernel: 3 padding: 1 bias: false } }
      layers { name: "b0" batch_normalization {} }
      layers { name: "r0" relu {} }
      layers { name: "c1" convolution { filters: 6 kernel: 3 stride: 2 padding: 1 bias: false } }
      layers { name: "b1" batch_normalization {} }
      layers { name: "s" inputs: "r0" convolution { filters: 6 kernel: 1 stride: 2 } }
      layers { name: "x" inputs: "b1" inputs: "s" add {} }
      layers { name: "r1" relu {} }
      layers { name: "c2" convolution { filters: 6 kernel: 3 padding: 1 } }
      layers { name: "y" inputs: "c2" inputs: "r1" add {} }
      layers { name: "r2" relu {} }
      layers { name: "p" global_average_pooling {} }
      layers { name: "f" fully_connected { units: 5 } })",
     {6, 6, 2}},
    {"one layer read by three, and twice by one",
     R"(
      layers { name: "f" fully_connected { units: 7 } }
      layers { name: "r" relu {} }
      layers { name: "a" inputs: "r" inputs: "f" add {} }
      layers { name: "t" inputs: "a" inputs: "a" add {} }
      layers { name: "u" inputs: "t" inputs: "f" add {} }
      layers { name: "v" inputs: "u" inputs: "r" add {} }
      layers { name: "r2" relu {} }
      layers { name: "r3" relu {} }
      layers { name: "g" fully_connected { units: 5 } })",
     {1, 1, 9}},
    {"dropout and flatten",
     R"(
      layers { name: "c" convolution { filters: 3 kernel: 2 } }
      layers { name: "d" dropout { rate: 0.4 } }
      layers { name: "v" flatten {} }
      layers { name: "r" relu {} }
      layers { name: "z" dropout {} }
      layers { name: "f" fully_connected { units: 8 } }
      layers { name: "e" dropout { rate: 0.2 } }
      layers { name: "g" fully_connected { units: 5 } })",
     {4, 4, 2}},
    {"batch normalisation of the input and of a vector",
     R"(
      layers { name: "b" batch_normalization { epsilon: 0.01 } }
      layers { name: "f" fully_connected { units: 6 } }
      layers { name: "n" batch_normalization {} }
      layers { name: "r" relu {} }
      layers { name: "g" fully_connected { units: 5 } })",
     {3, 3, 2}},
    {"last layer a ReLU that is fused",
     R"(
      layers { name: "f" fully_connected { units: 5 } }
      layers { name: "r" relu {} })",
     {1, 1, 9}},
    {"last layer a convolution",
     R"(
      layers { name: "c" convolution { filters: 5 kernel: 4 } })",
     {4, 4, 2}},
    {"sum with what came before the block, as in ResNet",
     R"(
      layers { name: "c" convolution { filters: 4 kernel: 3 padding: 1 } }
      layers { name: "d" convolution { filters: 4 kernel: 3 padding: 1 bias: false } }
      layers { name: "b" batch_normalization {} }
      layers { name: "x" inputs: "b" inputs: "c" add {} }
      layers { name: "s" relu {} }
      layers { name: "p" global_average_pooling {} }
      layers { name: "f" fully_connected { units: 5 } })",
     {5, 5, 2}},
    {"sum of two batch normalisations, as in ResNet",
     R"(
      layers { name: "c" convolution { filters: 3 kernel: 1 bias: false } }
      layers { name: "d" convolution { filters: 4 kernel: 3 stride: 2 padding: 1 bias: false } }
      layers { name: "b" batch_normalization {} }
      layers { name: "e" inputs: "c" convolution { filters: 4 kernel: 1 stride: 2 bias: false } }
      layers { name: "n" batch_normalization {} }
      layers { name: "x" inputs: "b" inputs: "n" add {} }
      layers { name: "s" relu {} }
      layers { name: "f" fully_connected { units: 5 } })",
     {4, 4, 2}},
    {"batch normalisation and what wants no gradient, then what others read before and after",
     R"(
      layers { name: "p" average_pooling { kernel: 3 stride: 1 padding: 1 } }
      layers { name: "c" convolution { filters: 2 kernel: 3 padding: 1 bias: false } }
      layers { name: "b" batch_normalization {} }
      layers { name: "x" inputs: "p" inputs: "b" add {} }
      layers { name: "r" relu {} }
      layers { name: "d" convolution { filters: 2 kernel: 3 padding: 1 bias: false } }
      layers { name: "n" batch_normalization {} }
      layers { name: "e" inputs: "r" convolution { filters: 2 kernel: 1 } }
      layers { name: "y" inputs: "n" inputs: "r" add {} }
      layers { name: "s" relu {} }
      layers { name: "u" inputs: "s" inputs: "e" add {} }
      layers { name: "w" inputs: "u" inputs: "r" add {} }
      layers { name: "q" global_average_pooling {} }
      layers { name: "f" fully_connected { units: 5 } })",
     {4, 4, 2}},
    {"sum with batch normalisation and ReLU that nobody else reads",
     R"(
      layers { name: "c" convolution { filters: 3 kernel: 3 padding: 1 bias: false } }
      layers { name: "b" batch_normalization {} }
      layers { name: "r" relu {} }
      layers { name: "d" inputs: "c" convolution { filters: 3 kernel: 3 padding: 1 bias: false } }
      layers { name: "n" batch_normalization {} }
      layers { name: "x" inputs: "n" inputs: "r" add {} }
      layers { name: "s" relu {} }
      layers { name: "f" fully_connected { units: 5 } })",
     {4, 4, 2}},
    {"sum with convolution and ReLU that nobody else reads",
     R"(
      layers { name: "c" convolution { filters: 3 kernel: 3 padding: 1 } }
      layers { name: "r" relu {} }
      layers { name: "d" inputs: "input" convolution { filters: 3 kernel: 3 padding: 1 } }
      layers { name: "n" batch_normalization {} }
      layers { name: "x" inputs: "r" inputs: "n" add {} }
      layers { name: "s" relu {} }
      layers { name: "f" fully_connected { units: 5 } })",
     {4, 4, 2}},
    {"sum of batch normalisation and the network's input",
     R"(
      layers { name: "c" convolution { filters: 3 kernel: 3 padding: 1 bias: false } }
      layers { name: "n" batch_normalization {} }
      layers { name: "x" inputs: "n" inputs: "input" add {} }
      layers { name: "s" relu {} }
      layers { name: "f" fully_connected { units: 5 } })",
     {5, 4, 3}},
    {"sum of batch normalisation and what flatten names anew",
     R"(
      layers { name: "c" fully_connected { units: 6 } }
      layers { name: "v" flatten {} }
      layers { name: "d" inputs: "input" fully_connected { units: 6 } }
      layers { name: "n" batch_normalization {} }
      layers { name: "x" inputs: "n" inputs: "v" add {} }
      layers { name: "s" relu {} }
      layers { name: "f" fully_connected { units: 5 } })",
     {2, 2, 2}},
    {"sums of batch normalisation and what dropout drops or leaves",
     R"(
      layers { name: "c" convolution { filters: 3 kernel: 1 } }
      layers { name: "h" dropout { rate: 0.5 } }
      layers { name: "d" inputs: "c" convolution { filters: 3 kernel: 3 padding: 1 } }
      layers { name: "n" batch_normalization {} }
      layers { name: "x" inputs: "h" inputs: "n" add {} }
      layers { name: "s" relu {} }
      layers { name: "e" convolution { filters: 3 kernel: 1 } }
      layers { name: "z" dropout {} }
      layers { name: "g" inputs: "s" convolution { filters: 3 kernel: 3 padding: 1 } }
      layers { name: "m" batch_normalization {} }
      layers { name: "y" inputs: "m" inputs: "z" add {} }
      layers { name: "t" relu {} }
      layers { name: "f" fully_connected { units: 5 } })",
     {4, 4, 2}},
    {"layer normalisation of an image and of a vector, GELU, a sum around both",
     R"(
      layers { name: "c" convolution { filters: 5 kernel: 2 } }
      layers { name: "n" layer_normalization { epsilon: 0.01 } }
      layers { name: "u" gelu {} }
      layers { name: "s" inputs: "u" inputs: "c" add {} }
      layers { name: "f" fully_connected { units: 7 } }
      layers { name: "m" layer_normalization {} }
      layers { name: "v" gelu {} }
      layers { name: "g" fully_connected { units: 5 } })",
     {4, 3, 2}},
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_TESTING_SMALL_NETS_H_
