#include "common/job/momentum_advice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace capstan {
namespace {

// In tenths, so that the numbers proposed are exact: 0.9 is the default and what models are
// usually trained with.
constexpr int kUsualTenths = 9;
// Rounding of a job file's fp32: 0.8 as fp32 is above 0.8.
constexpr float kRounding = 1e-6f;

std::optional<float> MomentumOf(const v1::Optimizer& optimizer) {
  constexpr float kDefault = kUsualTenths / 10.0f;
  if (optimizer.has_momentum()) {
    return optimizer.momentum().has_momentum() ? optimizer.momentum().momentum() : kDefault;
  }
  if (optimizer.has_nesterov()) {
    return optimizer.nesterov().has_momentum() ? optimizer.nesterov().momentum() : kDefault;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> AdviseOnMomentum(const v1::JobSpec& spec) {
  const bool immediate = spec.consistency().has_ssp() || spec.consistency().has_asp();
  const int workers = spec.resources().workers();
  const std::optional<float> momentum = MomentumOf(spec.optimizer());
  if (!immediate || workers < 2 || !momentum.has_value()) return std::nullopt;

  const int tenths = std::max(0, 10 - workers * (10 - kUsualTenths));
  if (*momentum <= static_cast<float>(tenths) / 10 + kRounding) return std::nullopt;

  const char* const kind = spec.optimizer().has_momentum() ? "momentum" : "nesterov";
  const std::string field = absl::StrCat("optimizer.", kind, ".momentum");
  const std::string found =
      absl::StrCat(field, ": ", *momentum, " is too high for ", workers, " workers in ",
                   spec.consistency().has_ssp() ? "ssp" : "asp",
                   ", where late gradients act like more momentum; use ");
  if (tenths > 0) {
    return absl::StrCat(found, tenths / 10.0, " at the rate that fits bsp (--set ", field, "=",
                        tenths / 10.0, ")");
  }
  // n * lr' = lr / (1 - 0.9).
  return absl::StrCat(found, "sgd at ", 10.0 / workers, " times the rate that fits bsp");
}

}  // namespace capstan
