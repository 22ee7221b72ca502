#include "kernels/cuda/measure.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/status.h"

namespace capstan::kernels::cuda {
namespace {

constexpr int kTimedRuns = 4;

// A CUDA event that frees itself.
struct EventDestroy {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, EventDestroy>;

absl::StatusOr<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  CAPSTAN_CUDA_CHECK(cudaEventCreate(&event), "creating an event");
  return Event(event);
}

}  // namespace

absl::StatusOr<Rehearsal> Rehearsal::Create(Device& device, const OpSignature& signature) {
  Rehearsal rehearsal;
  const auto add = [&](const Operand& operand) -> absl::Status {
    CAPSTAN_ASSIGN_OR_RETURN(DeviceMemory memory,
                             device.Allocate(BytesOf(operand), "timing of plans"));
    CAPSTAN_CUDA_CHECK(
        cudaMemsetAsync(memory.get(), 0, static_cast<size_t>(BytesOf(operand)), device.stream()),
        "clearing an operand");
    rehearsal.memory_.push_back(std::move(memory));
    return absl::OkStatus();
  };
  for (int i = 0; i < signature.input_count; ++i) {
    CAPSTAN_RETURN_IF_ERROR(add(signature.inputs[static_cast<size_t>(i)]));
  }
  for (int i = 0; i < signature.output_count; ++i) {
    CAPSTAN_RETURN_IF_ERROR(add(signature.outputs[static_cast<size_t>(i)]));
  }
  return rehearsal;
}

absl::StatusOr<float> TimeOf(Device& device, const std::function<absl::Status()>& run) {
  CAPSTAN_RETURN_IF_ERROR(run());
  CAPSTAN_ASSIGN_OR_RETURN(const Event begin, MakeEvent());
  CAPSTAN_ASSIGN_OR_RETURN(const Event end, MakeEvent());
  float best = 0.0f;
  for (int i = 0; i < kTimedRuns; ++i) {
    CAPSTAN_CUDA_CHECK(cudaEventRecord(begin.get(), device.stream()), "timing a plan");
    CAPSTAN_RETURN_IF_ERROR(run());
    CAPSTAN_CUDA_CHECK(cudaEventRecord(end.get(), device.stream()), "timing a plan");
    CAPSTAN_CUDA_CHECK(cudaEventSynchronize(end.get()), "timing a plan");
    float taken = 0.0f;
    CAPSTAN_CUDA_CHECK(cudaEventElapsedTime(&taken, begin.get(), end.get()), "timing a plan");
    best = i == 0 ? taken : std::min(best, taken);
  }
  return best;
}

absl::StatusOr<Choice> Choose(Device& device, int count,
                              const std::function<absl::Status(int candidate)>& run) {
  if (count == 0) return absl::UnimplementedError("the library offers no plan");
  if (count == 1 || device.options().plan_choice == PlanChoice::kHeuristic) return Choice();
  Choice best{.index = -1};
  float best_time = 0.0f;
  absl::Status failure;
  for (int i = 0; i < count; ++i) {
    cudaGetLastError();  // Libraries leave one behind where they tried what they cannot do.
    const absl::StatusOr<float> time = TimeOf(device, [&] { return run(i); });
    if (!time.ok()) {
      if (failure.ok() || absl::IsUnimplemented(failure)) failure = time.status();
      best.sure = best.sure && absl::IsUnimplemented(time.status());
      continue;
    }
    if (best.index >= 0 && *time >= best_time) continue;
    best.index = i;
    best_time = *time;
  }
  if (best.index < 0) return failure;
  return best;
}

std::string PlanKey(const Device& device, const std::string& op) {
  constexpr const char* kModes[] = {"fp32", "tf32", "bf16", "fp16"};
  return absl::StrCat(kModes[static_cast<size_t>(device.options().compute)], ", workspace ",
                      device.options().workspace_bytes_max, ": ", op);
}

std::string KeptPlan(const Device& device, const std::string& key) {
  if (device.plans() == nullptr) return "";
  return device.plans()->Find(key).value_or("");
}

void KeepPlan(const Device& device, const std::string& key, const std::string& plan) {
  if (device.plans() != nullptr) device.plans()->Add(key, plan);
}

}  // namespace capstan::kernels::cuda
