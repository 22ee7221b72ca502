// LocalTraining: a whole training run in one process, for tests: a sparse table is a map, the dense
// parameters an array, and the update rule Adagrad, w -= rate * g / (sqrt(sum of g^2) + 1e-10).
//
// Rows start as the model's shape says, drawn by key. Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_TESTING_LOCAL_TRAINING_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_TESTING_LOCAL_TRAINING_H_

#include <cstdint>
#include <map>
#include <vector>

#include "common/examples/example_batch.h"
#include "common/sparse_models/sparse_model.h"

namespace capstan::testing {

class LocalTraining {
 public:
  struct Options {
    float rate = 0.1f;
    int64_t batch_size = 100;
    uint64_t seed = 1;
  };
  // The model is borrowed.
  LocalTraining(SparseModel& model, const Options& options);

  // One pass over the examples, in their order. Returns the mean loss.
  double Epoch(const ExampleBatch& examples);

  // Outputs for all examples, whose unknown keys have new rows.
  std::vector<float> Predict(const ExampleBatch& examples);

  // The weights of a key; those of a new row if it was never trained.
  std::vector<float> Row(uint64_t key) const;

 private:
  struct Parameters {
    std::vector<float> weights;
    std::vector<float> squares;
    void Update(const float* gradient, float rate);
  };
  struct Step;  // One batch with its rows.

  Parameters NewRow(uint64_t key) const;

  SparseModel& model_;
  const Options options_;
  uint64_t epoch_ = 0;
  std::map<uint64_t, Parameters> table_;
  Parameters dense_;
};

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_TESTING_LOCAL_TRAINING_H_
