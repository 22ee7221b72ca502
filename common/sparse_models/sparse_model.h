// SparseModel: predictions, loss and gradients of a model whose parameters are rows of a sparse
// table, one row for each key that the examples name, and one flat array of dense parameters.
//
// The order of use, in which the model itself moves no data:
//
//   model.AppendKeys(examples, draws, &keys)              which rows the batch needs
//   MakeKeyBatch(keys, buckets, &places)                  each once (common/sparse/key_batch.h)
//   ... rows of these keys and the dense parameters are pulled ...
//   model.Train(input, N, row_gradients, dense_gradients)
//   ... gradients are pushed ...
//
// Pure: no threads, files, clocks. Every result has the same bits for the same input: all sums are
// in a fixed order. NaN and infinities in the input are passed on to the loss, never hidden.
// Thread safety: used by one thread at a time (models keep scratch memory between calls).
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_SPARSE_MODEL_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_SPARSE_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/examples/example_batch.h"
#include "common/model/model_plan.h"

namespace capstan {

// The kind of the outputs, and the loss.
enum class SparseLoss {
  kLogLoss,           // Outputs are logits; a label > 0 is a click. Nats.
  kSquared,           // Outputs are predicted labels; (output - label)^2.
  kNegativeSampling,  // Outputs are losses; labels are ignored. Nats.
};

// The parameters of a model.
struct SparseShape {
  int64_t row_dim = 1;
  // In new rows, this many columns start at 0, the columns behind them as `row_initial` says.
  int64_t zero_columns = 0;
  Initial row_initial;
  std::vector<PlannedTensor> dense;  // End to end from element 0.
  int64_t dense_count = 0;           // Elements.
  SparseLoss loss = SparseLoss::kLogLoss;
};

// Where the random draws of a batch come from: those of its example i follow from (key, first + i),
// so a batch that is cut in two, or computed again, draws the same.
struct SampleDraws {
  uint64_t key = 0;    // E.g. of the job's seed and the epoch.
  uint64_t first = 0;  // Number of the batch's first example in the epoch.
};

// A batch with all that its examples need. Borrowed for the call.
struct SparseInput {
  const ExampleBatch& examples;
  SampleDraws draws;                  // The draws of AppendKeys.
  absl::Span<const uint32_t> places;  // [keys of AppendKeys]: which row is that of a key.
  absl::Span<const float> rows;       // [unique keys, row_dim].
  absl::Span<const float> dense;      // [dense_count].
};

struct SparseResult {
  double loss_sum = 0;
  int64_t losses = 0;   // The terms of loss_sum: examples, or word pairs of skip-gram.
  int64_t correct = 0;  // kLogLoss: examples whose logit is above 0 if and only if their label is.
};

class SparseModel {
 public:
  virtual ~SparseModel() = default;

  virtual const SparseShape& shape() const = 0;

  // Appends the keys whose rows the batch needs, repeated ones repeatedly. Train and Predict expect
  // a place for each, in this order.
  // Errors: kInvalidArgument  the examples do not fit the model (README.md says when); names the
  //                           example, the value and what was expected. *keys is unchanged.
  virtual absl::Status AppendKeys(const ExampleBatch& examples, const SampleDraws& draws,
                                  std::vector<uint64_t>* keys) const = 0;

  // One forward and backward pass.
  //   gradient_samples  N >= 1, by which the gradients are divided: the examples of the whole
  //                     update, of which these may be a part
  //   row_gradients     [unique keys, row_dim]  overwritten: d(loss_sum)/d(row) / N, summed over
  //                     all the examples that name the key
  //   dense_gradients   [dense_count]  overwritten: d(loss_sum)/d(parameter) / N
  // REQUIRES: AppendKeys accepted the examples, and the sizes are these (asserted).
  virtual SparseResult Train(const SparseInput& input, int64_t gradient_samples,
                             absl::Span<float> row_gradients,
                             absl::Span<float> dense_gradients) = 0;

  // One forward pass: outputs[i] is that of example i (SparseLoss says what it is); it does not
  // depend on which other examples are in the batch, to the bit.
  // REQUIRES: as Train; outputs has an element for each example.
  virtual SparseResult Predict(const SparseInput& input, absl::Span<float> outputs) = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_SPARSE_MODEL_H_
