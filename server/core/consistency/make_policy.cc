#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "server/core/consistency/asp_policy.h"
#include "server/core/consistency/bsp_policy.h"
#include "server/core/consistency/consistency_policy.h"
#include "server/core/consistency/ssp_policy.h"

namespace capstan::server {

namespace {

absl::Status CheckCorrections(const ConsistencyRule& config) {
  const float lambda = config.delay_compensation;
  if (!(lambda >= 0.0f && lambda <= std::numeric_limits<float>::max())) {
    return absl::InvalidArgumentError(
        absl::StrCat("delay_compensation: ", lambda, ", expected 0 or more"));
  }
  if (!config.synchronous()) return absl::OkStatus();
  if (!config.rate_by_staleness && lambda == 0.0f) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "rate_by_staleness, delay_compensation: expected neither under BSP, which has no late "
      "gradients");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConsistencyPolicy>> MakePolicy(const ConsistencyRule& config) {
  CAPSTAN_RETURN_IF_ERROR(CheckCorrections(config));
  switch (config.mode) {
    case ConsistencyMode::kBsp:
      if (config.slots < 1 || config.slots > SlotTree::kSlotsMax) {
        return absl::InvalidArgumentError(
            absl::StrCat("slots: ", config.slots, ", expected 1 to ", SlotTree::kSlotsMax));
      }
      if (config.backups < 0 || config.backups >= config.slots) {
        return absl::InvalidArgumentError(absl::StrCat("backups: ", config.backups,
                                                       ", expected 0 to ", config.slots - 1,
                                                       ", fewer than slots"));
      }
      return std::make_unique<BspPolicy>(config);
    case ConsistencyMode::kSsp:
      if (config.staleness_bound < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("staleness_bound: ", config.staleness_bound, ", expected 0 or more"));
      }
      return std::make_unique<SspPolicy>(config);
    case ConsistencyMode::kAsp:
      return std::make_unique<AspPolicy>();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "consistency mode: ", static_cast<int>(config.mode), ", expected BSP, SSP or ASP"));
}

}  // namespace capstan::server
