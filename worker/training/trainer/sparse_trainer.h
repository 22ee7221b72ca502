// SparseTrainer: turns positions of an epoch into keys of rows, and rows into gradients and
// evaluations, for a worker task.
//
//   SparseBatch batch = trainer.LoadTraining(epoch, positions)   examples and their rows
//   ... rows of batch.keys and the dense parameters are pulled ...
//   trainer.Train(batch, gradient_samples, rows, dense, ...)      gradients to be pushed
//
// Thread safety: batches are loaded by one thread at a time, and used by one; the two may differ.
#ifndef CAPSTAN_WORKER_TRAINING_TRAINER_SPARSE_TRAINER_H_
#define CAPSTAN_WORKER_TRAINING_TRAINER_SPARSE_TRAINER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/examples/example_batch.h"
#include "common/examples/sets/example_set.h"
#include "common/sparse/key_batch.h"
#include "common/sparse_models/sparse_model.h"
#include "common/types/ids.h"
#include "common/types/progress.h"
#include "proto/job.pb.h"
#include "worker/training/network.h"

namespace capstan::worker {

// Examples with their draws and the keys of their rows.
struct SparseBatch {
  ExampleBatch examples;
  SampleDraws draws;
  std::vector<uint32_t> places;          // The place in `keys` of each key that the model named.
  std::shared_ptr<const KeyBatch> keys;  // Each key once, by bucket.
};

class SparseTrainer {
 public:
  // Loads the job's data and makes its model.
  // REQUIRES: CheckJob (common/job/check/check_job.h) found nothing wrong with `job`, whose model
  // is sparse.
  // Errors: those of ExampleSet::Open and MakeSparseModel, which also get `progress`.
  static absl::StatusOr<std::unique_ptr<SparseTrainer>> Create(const v1::JobSpec& job,
                                                               const Progress& progress = nullptr);

  // Same as Create, but only for LoadTest and Evaluate: training examples are read only if the
  // model is made from them (skip_gram counts their words). REQUIRES: the job also has a test
  // split.
  static absl::StatusOr<std::unique_ptr<SparseTrainer>> CreateForTest(
      const v1::JobSpec& job, const Progress& progress = nullptr);

  const SparseShape& shape() const { return model_->shape(); }
  int64_t train_samples() const { return train_ == nullptr ? 0 : train_->count(); }
  // 0 if there is no such split.
  int64_t validation_samples() const { return validation_ == nullptr ? 0 : validation_->count(); }
  int64_t test_samples() const { return test_ == nullptr ? 0 : test_->count(); }

  // Loads the examples at these positions of the epoch's order, which depends only on (seed, epoch)
  // and the data. No positions: an empty batch, which needs no rows.
  // Errors: kInvalidArgument  positions outside [0, train_samples()), or those of
  //                           SparseModel::AppendKeys; else those of ExampleSet.
  absl::StatusOr<SparseBatch> LoadTraining(Epoch epoch, Range positions);
  // Loads examples to be evaluated, in the order of the files: those of the validation split have
  // the first positions, those of the test split the positions after them. The positions of one
  // call are in one split. Errors: see LoadTraining.
  absl::StatusOr<SparseBatch> LoadTest(Range positions);

  // Calls SparseModel::Train, then clips by norm and checks for divergence.
  //   rows   [batch.keys, row_dim]    dense   [dense_count]
  //   row_gradients, dense_gradients  of the same sizes; overwritten
  // The result's loss is a sum over the examples; in skip-gram each counts the mean loss of a pair.
  // Errors: kOutOfRange  diverged: the loss or a gradient is not finite. No other error has it.
  absl::StatusOr<BatchResult> Train(const SparseBatch& batch, int64_t gradient_samples,
                                    absl::Span<const float> rows, absl::Span<const float> dense,
                                    absl::Span<float> row_gradients,
                                    absl::Span<float> dense_gradients);

  // Computes loss and hits of a batch. outputs[i]: the output of example i (see sparse_model.h).
  BatchResult Evaluate(const SparseBatch& batch, absl::Span<const float> rows,
                       absl::Span<const float> dense, std::vector<float>* outputs);

 private:
  SparseTrainer(const v1::JobSpec& job, std::unique_ptr<ExampleSet> train,
                std::unique_ptr<ExampleSet> validation, std::unique_ptr<ExampleSet> test,
                std::unique_ptr<SparseModel> model);

  // Finds the keys of the batch's examples.
  absl::Status FindKeys(SparseBatch* batch) const;
  BatchResult ResultOf(const SparseBatch& batch, const SparseResult& result) const;

  const uint64_t seed_;
  const double clip_norm_;
  const int32_t buckets_;
  const std::unique_ptr<ExampleSet> train_, validation_, test_;  // At least one is not null.
  const std::unique_ptr<SparseModel> model_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_TRAINER_SPARSE_TRAINER_H_
