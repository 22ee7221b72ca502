// SparseComputation: computes models on examples: each batch names the rows that are pulled for it;
// its gradient has the same rows (worker/training/trainer/sparse_trainer.h).
//
//                   BeginPull              BeginTraining                    Train
//   batches made ----------> pulled batch ---------------> batch in training ------> its gradient
//   ahead by one             rows in *parameters           parameters here, so that the
//   thread                                                 next can be pulled meanwhile
//
// If there is a cache of rows (worker/core/row_cache.h), BeginPull for training copies the cached
// rows to *parameters and asks only for the others; Pulled adds those to the cache.
//
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TASK_COMPUTATION_SPARSE_COMPUTATION_H_
#define CAPSTAN_WORKER_TASK_COMPUTATION_SPARSE_COMPUTATION_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/core/row_cache.h"
#include "worker/data/batch_source.h"
#include "worker/task/computation/computation.h"
#include "worker/training/trainer/sparse_trainer.h"

namespace capstan::worker {

// The examples of a batch: positions of an epoch, or positions for SparseTrainer::LoadTest.
struct ExamplePart {
  bool test = false;
  Epoch epoch;
  Range positions;
  friend bool operator==(const ExamplePart&, const ExamplePart&) = default;
};
std::string NameOf(const ExamplePart& part);  // A name for messages.

class SparseComputation final : public Computation {
 public:
  static absl::StatusOr<std::unique_ptr<Computation>> Create(const v1::JobSpec& job,
                                                             const Progress& progress);

  const std::vector<v1::TableSpec>& tables() const override { return tables_; }
  int64_t train_samples() const override { return trainer_->train_samples(); }
  // Errors: those of SparseTrainer::LoadTraining and LoadTest.
  absl::StatusOr<AllTableKeys> BeginPull(const Work& work, const std::vector<Work>& upcoming,
                                         TableArrays* parameters) override;
  RowsRead Pulled(const OpDone& done, const TableArrays& parameters) override;
  AllTableKeys BeginTraining(const Work& work, TableArrays* parameters,
                             GradientArrays* gradient) override;
  absl::StatusOr<WorkResult> Train(const Work& work, GradientArrays* gradient,
                                   const GradientPartReady& ready) override;
  std::string Kept() const override;
  absl::StatusOr<WorkResult> Evaluate(const Work& work, const TableArrays& parameters) override;

 private:
  SparseComputation(const v1::JobSpec& job, std::unique_ptr<SparseTrainer> trainer);
  AllTableKeys KeysOf(const SparseBatch& batch) const;
  size_t RowElements(const SparseBatch& batch) const;
  void MakeRoom(const SparseBatch& batch, TableArrays* arrays) const;

  const std::unique_ptr<SparseTrainer> trainer_;
  const std::vector<v1::TableSpec> tables_;
  std::optional<RowCache> cache_;
  bool pulled_is_taken_ = true;  // BeginTraining has taken pulled_.
  SparseBatch pulled_;
  SparseBatch training_;
  std::vector<float> rows_, dense_;  // The parameters of training_.
  // Declared last: its thread uses the trainer's data.
  PrefetchedSource<ExamplePart, SparseBatch> batches_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_COMPUTATION_SPARSE_COMPUTATION_H_
