// Checks for tests: properties that every sparse model has.
//
// The gradients are measured against a second implementation of the loss, in double and as naive
// as the formula: central differences of it have an error of 1e-9, so what is seen is the model's
// fp32 rounding alone. Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_TESTING_MODEL_CHECKS_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_TESTING_MODEL_CHECKS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "common/examples/example_batch.h"
#include "common/sparse_models/sparse_model.h"

namespace capstan::testing {

// One feature of an example in a test.
struct Feature {
  uint64_t key = 0;
  float value = 1;
  int32_t field = 0;
};

// Appends an example.
void AddExample(float label, const std::vector<float>& dense, const std::vector<Feature>& features,
                ExampleBatch* batch);

// The batch with the rows of its keys and dense parameters, all drawn from `seed`.
struct ModelCase {
  ModelCase(const SparseModel& model, const ExampleBatch& batch, uint64_t seed = 1,
            float row_scale = 0.5f);
  SparseInput Input() const { return {examples, draws, places, rows, dense}; }

  ExampleBatch examples;
  SampleDraws draws;
  int64_t row_dim = 0;
  std::vector<uint32_t> places;
  std::vector<float> rows;
  std::vector<float> dense;
};

struct Gradients {
  SparseResult result;
  std::vector<float> rows;
  std::vector<float> dense;
  friend bool operator==(const Gradients& a, const Gradients& b);  // Bit by bit.
};
Gradients TrainOn(SparseModel& model, const ModelCase& on, int64_t gradient_samples = 1);
std::vector<float> PredictOn(SparseModel& model, const ModelCase& on);

// The sum of the losses, in double. Rows and dense parameters are as in SparseInput.
using ReferenceLoss = std::function<double(const ModelCase& on, absl::Span<const double> rows,
                                           absl::Span<const double> dense)>;
// The output of one example; rows[j] is that of its key j. For LossOfOutputs.
using ReferenceOutput = std::function<double(
    const ExampleView& example, const std::vector<const double*>& rows, const double* dense)>;
ReferenceLoss LossOfOutputs(SparseLoss loss, ReferenceOutput output);

// Loss and gradients are those of the reference.
void CheckGradients(SparseModel& model, const ModelCase& on, const ReferenceLoss& reference);

// Same bits twice; batches of 0 and 1; a batch cut in two adds up; outputs do not depend on the
// rest of the batch; gradient_samples divides; a NaN in rows or dense parameters reaches the loss.
// REQUIRES: at least two examples.
void CheckInvariants(SparseModel& model, const ExampleBatch& examples);

// Naive fully connected layers with ReLU between them (and behind, if relu_last) on `in`, with
// parameters from dense + *offset on, which moves behind them.
std::vector<double> ReferenceMlp(std::vector<double> in, const std::vector<int64_t>& widths,
                                 bool relu_last, const double* dense, int64_t* offset);

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_TESTING_MODEL_CHECKS_H_
