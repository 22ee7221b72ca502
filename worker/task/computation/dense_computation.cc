#include "worker/task/computation/dense_computation.h"

#include <utility>

#include "common/model/tables.h"
#include "common/status/status_macros.h"
#include "kernels/backend_group.h"
#include "worker/task/computation/backend.h"
#include "worker/task/computation/lost_gpus.h"
#include "worker/task/computation/task_options.h"

namespace capstan::worker {
namespace {

MicroBatch ToMicroBatch(const Work& work) {
  return {
      .epoch = work.epoch, .positions = work.positions, .gradient_samples = work.gradient_samples};
}

bool IsHalf(NumberFormat format) { return format != NumberFormat::kFp32; }

WorkResult ResultOf(const Work& work, const BatchResult& batch) {
  return {.samples = work.positions.size(),
          .loss_sum = batch.loss_sum,
          .correct = batch.correct,
          .scores = batch.scores,
          .outputs = batch.outputs};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Computation>> DenseComputation::Create(const v1::JobSpec& job,
                                                                      const std::vector<int>& gpus,
                                                                      StepObserver* observer) {
  CAPSTAN_ASSIGN_OR_RETURN(kernels::BackendGroup backends, MakeBackends(DeviceChoiceOf(job, gpus)));
  const TableFormats wire = WireFormats(job)[kParametersTable];
  CAPSTAN_ASSIGN_OR_RETURN(
      std::unique_ptr<Trainer> trainer,
      Trainer::Create(job, std::move(backends), observer,
                      {.gradients = wire.gradients, .parameters = wire.parameters}));
  return std::unique_ptr<Computation>(new DenseComputation(std::move(trainer), gpus));
}

DenseComputation::DenseComputation(std::unique_ptr<Trainer> trainer, std::vector<int> gpus)
    : trainer_(std::move(trainer)), gpus_(std::move(gpus)), tables_(MakeTables(trainer_->plan())) {
  if (IsHalf(trainer_->exchanges().parameters)) {
    half_parameters_.emplace_back(static_cast<size_t>(trainer_->plan().parameter_count));
  }
}

absl::Status DenseComputation::Located(absl::Status status) const {
  if (!absl::IsUnavailable(status) || gpus_.size() < 2) return status;
  std::vector<int> lost;
  for (const size_t device : trainer_->SilentDevices()) lost.push_back(gpus_[device]);
  return WithLostGpus(std::move(status), lost);
}

void DenseComputation::MakeRoom(TableArrays* arrays, bool halves) const {
  arrays->resize(tables_.size());
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (halves && i == kParametersTable) continue;
    (*arrays)[i].resize(static_cast<size_t>(tables_[i].elements()));
  }
}

absl::StatusOr<AllTableKeys> DenseComputation::BeginPull(const Work&, const std::vector<Work>&,
                                                         TableArrays* parameters) {
  pulled_ = Parameters::kNew;
  MakeRoom(parameters, /*halves=*/false);  // Evaluations and exports need all tables as fp32.
  return AllTableKeys();
}

HalfArrays* DenseComputation::half_parameters() {
  return half_parameters_.empty() ? nullptr : &half_parameters_;
}

AllTableKeys DenseComputation::BeginTraining(const Work&, TableArrays*, GradientArrays* gradient) {
  const bool halves = IsHalf(trainer_->exchanges().gradients);
  MakeRoom(&gradient->floats, halves);
  gradient->halves.resize(halves ? 1 : 0);
  if (halves) {
    gradient->halves[kParametersTable].resize(
        static_cast<size_t>(trainer_->plan().parameter_count));
  }
  return {};
}

bool DenseComputation::Forward(const Work& work, const std::vector<Work>& upcoming,
                               const TableArrays& parameters, const ParametersNeeded& needed) {
  std::vector<MicroBatch> ahead;
  if (!upcoming.empty() && upcoming.front() == work) {
    for (size_t i = 1; i < upcoming.size(); ++i) ahead.push_back(ToMicroBatch(upcoming[i]));
  }
  const ParameterView view =
      half_parameters_.empty()
          ? ParameterView(parameters[kParametersTable])
          : ParameterView(absl::MakeConstSpan(half_parameters_[kParametersTable]));
  forward_ = trainer_->Forward(ToMicroBatch(work), view, ahead, needed);
  return !absl::IsCancelled(forward_);
}

absl::StatusOr<WorkResult> DenseComputation::Train(const Work& work, GradientArrays* gradient,
                                                   const GradientPartReady& ready) {
  CAPSTAN_RETURN_IF_ERROR(Located(forward_));
  TableArrays& tables = gradient->floats;
  const GradientView view = gradient->halves.empty()
                                ? GradientView(absl::MakeSpan(tables[kParametersTable]))
                                : GradientView(absl::MakeSpan(gradient->halves[kParametersTable]));
  const absl::Span<float> statistics = tables.size() > kStatisticsTable
                                           ? absl::MakeSpan(tables[kStatisticsTable])
                                           : absl::Span<float>();
  const absl::StatusOr<BatchResult> batch = trainer_->Backward(view, statistics, ready);
  if (!batch.ok()) return Located(batch.status());
  return ResultOf(work, *batch);
}

absl::StatusOr<WorkResult> DenseComputation::Evaluate(const Work& work,
                                                      const TableArrays& parameters) {
  const absl::StatusOr<BatchResult> batch =
      trainer_->Evaluate(work.positions, parameters, std::exchange(pulled_, Parameters::kSame));
  if (!batch.ok()) return Located(batch.status());
  return ResultOf(work, *batch);
}

}  // namespace capstan::worker
