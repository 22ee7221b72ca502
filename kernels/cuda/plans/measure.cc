#include "kernels/cuda/plans/measure.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/half_values.h"
#include "kernels/cuda/plans/cuda_plan.h"
#include "kernels/cuda/plans/plan_store.h"
#include "kernels/cuda/plans/status.h"

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

// Makes numbers uniform in [-1, 1), of a floating-point type.
std::vector<char> UniformNumbers(DataType dtype, int64_t count) {
  std::vector<char> numbers(static_cast<size_t>(count * BytesOf(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    const float value = 2.0f * ToUnitFloat(PhiloxWord(0, static_cast<uint64_t>(i))) - 1.0f;
    if (IsHalf(dtype)) {
      reinterpret_cast<uint16_t*>(numbers.data())[i] = ToHalf(dtype, value);
    } else {
      reinterpret_cast<float*>(numbers.data())[i] = value;
    }
  }
  return numbers;
}

}  // namespace

absl::Status FillUniform(Device& device, const Operand& operand, void* memory) {
  // The host makes this many numbers; the device copies them to the rest of the operand.
  constexpr int64_t kPiece = int64_t{1} << 18;
  const std::vector<char> piece = UniformNumbers(operand.dtype, std::min(kPiece, operand.count));
  const int64_t bytes = BytesOf(operand);
  char* const to = static_cast<char*>(memory);
  CAPSTAN_CUDA_CHECK(
      cudaMemcpyAsync(to, piece.data(), piece.size(), cudaMemcpyHostToDevice, device.stream()),
      "filling an operand");
  CAPSTAN_RETURN_IF_ERROR(device.AwaitStream(device.stream()));  // Until then `piece` must live.
  for (int64_t done = static_cast<int64_t>(piece.size()); done < bytes; done *= 2) {
    CAPSTAN_CUDA_CHECK(
        cudaMemcpyAsync(to + done, to, static_cast<size_t>(std::min(done, bytes - done)),
                        cudaMemcpyDeviceToDevice, device.stream()),
        "filling an operand");
  }
  return absl::OkStatus();
}

namespace {

using Times = std::vector<absl::StatusOr<float>>;
using RunCandidate = std::function<absl::Status(int candidate)>;

// Runs each candidate once, since libraries load and compile in the first run. Sets the status of
// those that fail; they are not run again.
void RunOnce(Times& times, const RunCandidate& run) {
  for (size_t i = 0; i < times.size(); ++i) {
    cudaGetLastError();  // Clears errors that libraries leave after attempts that fail.
    const absl::Status status = run(static_cast<int>(i));
    if (!status.ok()) times[i] = status;
  }
}

absl::Status RunAll(const Times& times, const RunCandidate& run) {
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i].ok()) CAPSTAN_RETURN_IF_ERROR(run(static_cast<int>(i)));
  }
  return absl::OkStatus();
}

// Runs the candidates until the card has the clock that it has under load.
absl::Status WarmUp(Device& device, const Times& times, const RunCandidate& run) {
  if (std::none_of(times.begin(), times.end(), [](const auto& time) { return time.ok(); }))
    return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(device.AwaitStream(device.stream()));
  const std::chrono::duration<double> wanted(device.options().warm_up_seconds);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < wanted) {
    CAPSTAN_RETURN_IF_ERROR(RunAll(times, run));
    CAPSTAN_RETURN_IF_ERROR(device.AwaitStream(device.stream()));
  }
  return absl::OkStatus();
}

// Stores the fastest of kTimedRuns runs of each candidate. REQUIRES: those that are OK have run.
absl::Status TimeInTurn(Device& device, Times& times, const RunCandidate& run) {
  CAPSTAN_ASSIGN_OR_RETURN(const Event begin, MakeEvent());
  CAPSTAN_ASSIGN_OR_RETURN(const Event end, MakeEvent());
  for (int round = 0; round < kTimedRuns; ++round) {
    for (size_t i = 0; i < times.size(); ++i) {
      if (!times[i].ok()) continue;
      CAPSTAN_CUDA_CHECK(cudaEventRecord(begin.get(), device.stream()), "timing a plan");
      CAPSTAN_RETURN_IF_ERROR(run(static_cast<int>(i)));
      CAPSTAN_CUDA_CHECK(cudaEventRecord(end.get(), device.stream()), "timing a plan");
      CAPSTAN_CUDA_CHECK(cudaEventSynchronize(end.get()), "timing a plan");
      float taken = 0.0f;
      CAPSTAN_CUDA_CHECK(cudaEventElapsedTime(&taken, begin.get(), end.get()), "timing a plan");
      times[i] = round == 0 ? taken : std::min(*times[i], taken);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Rehearsal> Rehearsal::Create(Device& device, const OpSignature& signature) {
  Rehearsal rehearsal;
  const auto add = [&](const Operand& operand) -> absl::Status {
    CAPSTAN_ASSIGN_OR_RETURN(DeviceMemory memory,
                             device.Allocate(BytesOf(operand), "timing of plans"));
    CAPSTAN_RETURN_IF_ERROR(FillUniform(device, operand, memory.get()));
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

absl::StatusOr<Choice> Choose(Device& device, int count,
                              const std::function<absl::Status(int candidate)>& run) {
  if (count == 0) return absl::UnimplementedError("the library offers no plan");
  if (count == 1 || device.options().plan_choice == PlanChoice::kHeuristic) return Choice();
  Choice choice{.index = -1};
  choice.times.assign(static_cast<size_t>(count), 0.0f);
  RunOnce(choice.times, run);
  CAPSTAN_RETURN_IF_ERROR(WarmUp(device, choice.times, run));
  CAPSTAN_RETURN_IF_ERROR(TimeInTurn(device, choice.times, run));
  absl::Status failure;
  for (int i = 0; i < count; ++i) {
    const absl::StatusOr<float>& time = choice.times[static_cast<size_t>(i)];
    if (!time.ok()) {
      if (failure.ok() || absl::IsUnimplemented(failure)) failure = time.status();
      choice.sure = choice.sure && absl::IsUnimplemented(time.status());
    } else if (choice.index < 0 || *time < *choice.times[static_cast<size_t>(choice.index)]) {
      choice.index = i;
    }
  }
  if (choice.index < 0) return failure;
  return choice;
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

void KeepChoice(const Device& device, const std::string& key, const Choice& choice,
                const std::vector<std::string>& names, const std::vector<std::string>& refused) {
  PlanStore* const store = device.plans();
  if (store == nullptr) return;
  // If lack of memory excluded a candidate, the next process may find a faster one.
  if (choice.sure) store->Add(key, names[static_cast<size_t>(choice.index)]);
  std::vector<std::string> found;
  for (const absl::StatusOr<float>& time : choice.times) {
    found.push_back(time.ok() ? absl::StrCat(*time, " ms")
                              : absl::StrCat("not timed: ", time.status().message()));
  }
  for (const std::string& reason : refused) found.push_back(absl::StrCat("refused: ", reason));
  store->Note(key, names, found);
}

}  // namespace capstan::kernels::cuda
