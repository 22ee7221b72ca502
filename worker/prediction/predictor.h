// Predictor: predicts the samples of a split of data with an exported model.
//
// It computes what a task computes when it evaluates, with the same code, from files instead of
// servers. It reads and computes some samples at a time: memory does not grow with their number,
// except for formats that hold the whole split in memory (images).
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_PREDICTION_PREDICTOR_H_
#define CAPSTAN_WORKER_PREDICTION_PREDICTOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/metrics/evaluation.h"
#include "common/metrics/score_counts.h"
#include "common/tensor/model_reader.h"
#include "common/types/ids.h"
#include "proto/job.pb.h"

namespace capstan::worker {

// The meaning of a sample's outputs.
enum class OutputKind {
  kLogits,  // One logit for each class.
  kLogit,   // The logit of a click.
  kValue,   // The predicted label.
  kLoss,    // The loss of a line of words, which has no label.
  kValues,  // The predicted numbers of a label.
  kFlags,   // The logit of each of several labels.
};

// The predictions for consecutive samples.
struct Predictions {
  int64_t first = 0;           // The number of the first sample, in the order of the files.
  std::vector<float> labels;   // [n]; kValues, kFlags: [n, Predictor::width()]
  std::vector<float> outputs;  // [n, Predictor::width()]
};

class Predictor {
 public:
  // Makes a predictor for the split `job.data().test()`. The train split is read only if the model
  // is made from it (skip_gram counts its words).
  // REQUIRES: ValidateJob found nothing wrong with `job`; its block_examples are counted.
  // Errors: those of LoadDataset, PlanModel, ExampleSet::Open, MakeSparseModel and ModelReader.
  static absl::StatusOr<std::unique_ptr<Predictor>> Create(const v1::JobSpec& job,
                                                           const ModelReader& model);
  virtual ~Predictor() = default;

  virtual OutputKind kind() const = 0;
  virtual int64_t width() const = 0;  // Outputs per sample, >= 1.
  virtual int64_t count() const = 0;  // Samples in the split, >= 1.

  // Replaces *predictions by those of the samples `numbers`, and adds their figures to *sum and,
  // for clicks and labels, to *scores. REQUIRES: `numbers` is a part of [0, count()).
  // Errors: those of EvaluateSplit, or of SparseTrainer::LoadTest.
  virtual absl::Status Predict(Range numbers, Predictions* predictions, EvaluationSum* sum,
                               ScoreCounts* scores) = 0;
};

// Make the two kinds of predictors: for models of layers, and for models on examples.
absl::StatusOr<std::unique_ptr<Predictor>> MakeDensePredictor(const v1::JobSpec& job,
                                                              const ModelReader& model);
absl::StatusOr<std::unique_ptr<Predictor>> MakeSparsePredictor(const v1::JobSpec& job,
                                                               const ModelReader& model);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PREDICTION_PREDICTOR_H_
