#include "worker/training/step/step_memory.h"

#include <cmath>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/training/step/device_step_memory.h"
#include "worker/training/step/gradient_norm.h"

namespace capstan::worker {
namespace {

template <typename T>
void* DataOf(absl::Span<T> values) {
  // An op reads or writes its operands; their views have no const form.
  return const_cast<std::remove_const_t<T>*>(values.data());
}

// Uses the caller's arrays themselves.
class HostStepMemory final : public StepMemory {
 public:
  HostStepMemory(kernels::Backend& backend, const std::vector<float>& loss_weights)
      : StepMemory(backend), loss_weights_(loss_weights) {}

  int64_t FixedBytes(int64_t) override { return 0; }
  absl::Status Allocate() override { return absl::OkStatus(); }
  int64_t part_elements() const override { return 1; }

  absl::Status Begin(const ForwardArrays& arrays) override {
    SetBase(Place::kImages, DataOf(arrays.batch.images));
    SetBase(Place::kLabels, DataOf(arrays.batch.labels));
    SetBase(Place::kTargets, DataOf(arrays.batch.targets));
    SetBase(Place::kLossWeights, DataOf(absl::MakeConstSpan(loss_weights_)));
    SetBase(Place::kParameters, DataOf(arrays.parameters.floats));
    SetBase(Place::kWeights, DataOf(arrays.parameters.floats));
    SetBase(Place::kStatistics, DataOf(arrays.statistics));
    SetBase(Place::kMoments, DataOf(arrays.moments));
    SetBase(Place::kKeys, DataOf(arrays.keys));
    return absl::OkStatus();
  }
  void BeginAgain(absl::Span<float>) override {}  // Never called on the host.
  absl::Status UploadParameters(int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status UseParameters(int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status ForwardDone(const Operand& loss, const Operand& logits) override {
    loss_ = Resolve(loss).f32();
    logits_ = Resolve(logits);
    return absl::OkStatus();
  }
  void BeginBackward(const BackwardArrays& arrays) override {
    ready_ = arrays.ready;
    gradient_ = arrays.gradient.floats;
    gradient_finite_ = true;
    SetBase(Place::kGradient, DataOf(gradient_));
  }
  absl::Status GradientComputed(int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status TakeGradient(int64_t begin, int64_t end) override {
    if (ready_ == nullptr) return absl::OkStatus();
    const auto part =
        gradient_.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    gradient_finite_ = gradient_finite_ && std::isfinite(SumOfSquares(part));
    if (begin > 0 && gradient_finite_) ready_(begin);
    return absl::OkStatus();
  }
  absl::Status UpdateParameters(const std::function<absl::Status(float*, const float*)>&) override {
    return absl::OkStatus();  // Never called on the host.
  }
  absl::Status End() override {
    ready_ = nullptr;
    return absl::OkStatus();
  }
  absl::Status Stage(const BatchView&) override { return absl::OkStatus(); }

 private:
  const std::vector<float>& loss_weights_;  // Owned by the plan, which outlives this.
  absl::Span<float> gradient_;
  GradientReady ready_;
};

}  // namespace

std::unique_ptr<StepMemory> StepMemory::Create(const ModelPlan& plan, kernels::Backend& backend,
                                               int64_t batch_size_max, StepRole role,
                                               const ExchangeFormats& formats, StepWatch& watch) {
  if (kernels::DeviceBackend* const device = backend.device(); device != nullptr) {
    return std::make_unique<DeviceStepMemory>(plan, *device, batch_size_max, role, formats, watch);
  }
  return std::make_unique<HostStepMemory>(backend, plan.loss.weights);
}

absl::StatusOr<bool> StepMemory::ReserveArena(int64_t bytes) {
  if (bytes <= arena_bytes_) return false;
  arena_.reset();
  arena_bytes_ = 0;
  arena_.reset(backend_.Allocate(bytes));
  if (arena_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  }
  arena_bytes_ = bytes;
  SetBase(Place::kArena, arena_.get());
  return true;
}

}  // namespace capstan::worker
