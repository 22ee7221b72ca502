#include "common/job/check/asynchrony_advice.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/job/spec/consistency_of.h"
#include "common/job/spec/optimizer_fields.h"

namespace capstan {
namespace {

// The usual momentum in hundredths, so that proposed numbers are exact. 0.9 is the default, and
// models are usually trained with it.
constexpr int kUsualHundredths = 90;
// Allows for the rounding of a job file's fp32: 0.8 as fp32 is above 0.8.
constexpr float kRounding = 1e-6f;

std::optional<float> MomentumOf(const v1::Optimizer& optimizer) {
  if (!optimizer.has_momentum() && !optimizer.has_nesterov() && !optimizer.has_lars()) {
    return std::nullopt;
  }
  return OptimizerNumber(optimizer, OptimizerFields(OptimizerName(optimizer)).front());
}

std::optional<std::string> AdviseOnMomentum(const v1::JobSpec& spec) {
  const int workers = spec.resources().workers();
  const std::optional<float> momentum = MomentumOf(spec.optimizer());
  if (!momentum.has_value()) return std::nullopt;

  const ConsistencyRule consistency = ConsistencyOf(spec);
  const bool divides = consistency.rate_by_staleness;
  const int divisor = divides ? std::max(1, workers - 1) : 1;
  const int less = (workers * (100 - kUsualHundredths) + divisor - 1) / divisor;
  const int hundredths = std::max(0, 100 - less);
  if (*momentum <= static_cast<float>(hundredths) / 100 + kRounding) return std::nullopt;

  const std::string field =
      absl::StrCat("optimizer.", OptimizerName(spec.optimizer()), ".momentum");
  const std::string found =
      absl::StrCat(field, ": ", *momentum, " is too high for ", workers, " workers in ",
                   NameOf(consistency.mode), divides ? " with rate_by_staleness" : "",
                   ", where late gradients act like more momentum; use ");
  if (hundredths > 0) {
    return absl::StrCat(found, hundredths / 100.0, " at the rate that fits bsp (--set ", field, "=",
                        hundredths / 100.0, ")");
  }
  if (spec.optimizer().has_lars()) return absl::StrCat(found, "0 and a lower rate");
  // The rate lr' follows from n * lr' = lr / (1 - 0.9).
  return absl::StrCat(found, "sgd at ", 10.0 / workers, " times the rate that fits bsp");
}

// Returns the number of pushes of the whole job to each shard.
int64_t PushesOf(const v1::JobSpec& spec, int64_t samples) {
  const int64_t batch = spec.training().batch_size();
  const int64_t pushes = spec.training().epochs() * ((samples + batch - 1) / batch);
  const int64_t limit = spec.training().iterations_max();
  return limit > 0 ? std::min(limit, pushes) : pushes;
}

std::optional<std::string> AdviseOnCosine(const v1::JobSpec& spec, int64_t samples) {
  if (!spec.optimizer().schedule().has_cosine()) return std::nullopt;
  const int64_t steps = spec.optimizer().schedule().cosine().steps();
  const int64_t pushes = PushesOf(spec, samples);
  // For BSP with two workers, the steps are half of the pushes, or more where the last iteration of
  // each epoch is not full.
  if (4 * steps > 3 * pushes) return std::nullopt;
  constexpr const char* kField = "optimizer.schedule.cosine.steps";
  return absl::StrCat(
      kField, ": ", steps, " updates are over before three quarters of the job's ", pushes,
      " pushes, each of which is an update in ", NameOf(ConsistencyOf(spec).mode),
      " (in bsp those of all workers are one); use ", pushes, " (--set ", kField, "=", pushes, ")");
}

}  // namespace

std::vector<std::string> AdviseOnAsynchrony(const v1::JobSpec& spec, int64_t samples) {
  if (ConsistencyOf(spec).synchronous() || spec.resources().workers() < 2) return {};
  std::vector<std::string> advice;
  for (const auto& sentence : {AdviseOnMomentum(spec), AdviseOnCosine(spec, samples)}) {
    if (sentence.has_value()) advice.push_back(*sentence);
  }
  return advice;
}

}  // namespace capstan
