// Choosing among the plans that a library offers: the first that works, or the fastest by timing.
//
// Thread safety: functions; the device is used by one thread at a time.
#ifndef CAPSTAN_KERNELS_CUDA_MEASURE_H_
#define CAPSTAN_KERNELS_CUDA_MEASURE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"
#include "kernels/op_check.h"

namespace capstan::kernels::cuda {

// Candidates that are timed; libraries order them by what they expect of each.
inline constexpr int kCandidatesMax = 12;

// Fills an operand with numbers uniform in [-1, 1): a card that multiplies zeros draws less power,
// and is faster than it would be. REQUIRES: its type is of floating point.
absl::Status FillUniform(Device& device, const Operand& operand, void* memory);

// Memory like an op's operands, for timing: inputs in order, then outputs, filled as above.
class Rehearsal {
 public:
  // Errors: kResourceExhausted  no memory for them.
  static absl::StatusOr<Rehearsal> Create(Device& device, const OpSignature& signature);
  // Of operand `i`, inputs first.
  void* operand(int i) const { return memory_[static_cast<size_t>(i)].get(); }

 private:
  std::vector<DeviceMemory> memory_;
};

struct Choice {
  int index = 0;
  // Whether all were timed, but for those that cannot do it (kUnimplemented): else another time may
  // choose another one.
  bool sure = true;
  // By candidate: milliseconds of its fastest run, or why it has none. Empty: nothing was timed.
  std::vector<absl::StatusOr<float>> times;
};

// The fastest of `count` candidates; those whose run fails are left out. Each is run once, then all
// until the card has worked for CudaOptions::warm_up_seconds, then they are timed in turn, so that
// no one has a warmer card than the others. With PlanChoice::kHeuristic, or a single candidate, the
// first.
// Errors: kUnimplemented  count is 0; if all fail, that of one that could do it, if there is one.
absl::StatusOr<Choice> Choose(Device& device, int count,
                              const std::function<absl::Status(int candidate)>& run);

// Under what the plan for `op` is kept, which names its kind and shapes: that and the options.
std::string PlanKey(const Device& device, const std::string& op);
// What was found to be the fastest for `key`, by this process or another one; empty: nothing yet.
std::string KeptPlan(const Device& device, const std::string& key);
// Keeps the name of the plan that was chosen, if all have been timed and it has one, and what was
// measured of each. `names`: by candidate, and behind them of plans that were not timed at all,
// whose reasons are `refused`.
void KeepChoice(const Device& device, const std::string& key, const Choice& choice,
                const std::vector<std::string>& names,
                const std::vector<std::string>& refused = {});

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_MEASURE_H_
