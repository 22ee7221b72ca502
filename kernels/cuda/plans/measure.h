// Choose: selects one of the plans that a library offers, the first or the fastest by timing. The
// planners of convolutions and fully connected ops use it.
//
// Thread safety: functions; one thread at a time uses the device.
#ifndef CAPSTAN_KERNELS_CUDA_PLANS_MEASURE_H_
#define CAPSTAN_KERNELS_CUDA_PLANS_MEASURE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/plans/device.h"
#include "kernels/op_check.h"

namespace capstan::kernels::cuda {

// The most candidates that are timed. Libraries list the ones first that they expect to be fast.
inline constexpr int kCandidatesMax = 12;

// Fills an operand with numbers uniform in [-1, 1). A card that multiplies zeros draws less power,
// and would be too fast. REQUIRES: the operand has a floating-point type.
absl::Status FillUniform(Device& device, const Operand& operand, void* memory);

// Memory for all operands of an op, for timing. FillUniform fills it.
class Rehearsal {
 public:
  // Errors: kResourceExhausted  not enough memory for the operands.
  static absl::StatusOr<Rehearsal> Create(Device& device, const OpSignature& signature);
  // The memory of operand `i`: inputs in order, then outputs.
  void* operand(int i) const { return memory_[static_cast<size_t>(i)].get(); }

 private:
  std::vector<DeviceMemory> memory_;
};

struct Choice {
  int index = 0;
  // True if all candidates were timed, except those that cannot compute the op (kUnimplemented).
  // Otherwise the next process may choose another one.
  bool sure = true;
  // For each candidate: milliseconds of its fastest run, or why it was not timed. Empty: none was.
  std::vector<absl::StatusOr<float>> times;
};

// Returns the fastest of `count` candidates. Runs each once and drops those that fail, then runs
// all until the card has worked for CudaOptions::warm_up_seconds, then times them in turn, so that
// none has a warmer card than the others. With PlanChoice::kHeuristic, or a single candidate, it
// returns the first and runs nothing.
// Errors: kUnimplemented  count is 0. If all candidates fail, the error of one of them, if possible
//         one that is not kUnimplemented.
absl::StatusOr<Choice> Choose(Device& device, int count,
                              const std::function<absl::Status(int candidate)>& run);

// The key under which PlanStore keeps the plan for `op`, a text with its kind and shapes. The key
// also contains the mode and workspace_bytes_max.
std::string PlanKey(const Device& device, const std::string& op);
// The name of the plan that this or another process measured to be the fastest for `key`; empty if
// none is kept.
std::string KeptPlan(const Device& device, const std::string& key);
// Keeps the name of the chosen plan, if choice.sure and it has a name, and notes the measurements
// of all candidates.
//   names    of the candidates, and then of plans that were refused before timing
//   refused  the reasons for the latter
void KeepChoice(const Device& device, const std::string& key, const Choice& choice,
                const std::vector<std::string>& names,
                const std::vector<std::string>& refused = {});

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLANS_MEASURE_H_
