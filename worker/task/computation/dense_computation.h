// DenseComputation: computes models of layers, whose tables are pulled whole (training/trainer.h).
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TASK_COMPUTATION_DENSE_COMPUTATION_H_
#define CAPSTAN_WORKER_TASK_COMPUTATION_DENSE_COMPUTATION_H_

#include <memory>
#include <vector>

#include "worker/task/computation/computation.h"
#include "worker/training/trainer/trainer.h"

namespace capstan::worker {

class DenseComputation final : public Computation {
 public:
  static absl::StatusOr<std::unique_ptr<Computation>> Create(const v1::JobSpec& job,
                                                             const std::vector<int>& gpus,
                                                             StepObserver* observer);

  const std::vector<v1::TableSpec>& tables() const override { return tables_; }
  int64_t train_samples() const override { return trainer_->train_samples(); }
  absl::StatusOr<AllTableKeys> BeginPull(const Work& work, const std::vector<Work>& upcoming,
                                         TableArrays* parameters) override;
  HalfArrays* half_parameters() override;
  AllTableKeys BeginTraining(const Work& work, TableArrays* parameters,
                             GradientArrays* gradient) override;
  bool Forward(const Work& work, const std::vector<Work>& upcoming, const TableArrays& parameters,
               const ParametersNeeded& needed) override;
  absl::StatusOr<WorkResult> Train(const Work& work, GradientArrays* gradient,
                                   const GradientPartReady& ready) override;
  absl::StatusOr<WorkResult> Evaluate(const Work& work, const TableArrays& parameters) override;

 private:
  DenseComputation(std::unique_ptr<Trainer> trainer, std::vector<int> gpus);
  // Makes room for all tables; if `halves`, for all except the parameters.
  void MakeRoom(TableArrays* arrays, bool halves) const;
  // Adds to an error of computing the GPUs that have failed, if they are known.
  absl::Status Located(absl::Status status) const;

  const std::unique_ptr<Trainer> trainer_;
  const std::vector<int> gpus_;  // The GPUs that it computes on, in the order of its devices.
  const std::vector<v1::TableSpec> tables_;
  HalfArrays half_parameters_;            // Empty: parameters are exchanged as fp32.
  absl::Status forward_;                  // The result of the last Forward.
  Parameters pulled_ = Parameters::kNew;  // kSame: nothing was pulled since the last evaluation.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_COMPUTATION_DENSE_COMPUTATION_H_
