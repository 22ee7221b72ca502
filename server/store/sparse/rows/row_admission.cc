#include "server/store/sparse/rows/row_admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

constexpr uint64_t kAdmissionStream = 0x41444D4954;

}  // namespace

uint64_t RowAdmission::StreamOf(uint64_t seed, TableId table) {
  return MixKey(MixKey(seed, kAdmissionStream), static_cast<uint64_t>(table.value()));
}

RowAdmission::RowAdmission(const Config& config, std::optional<AdmissionFilter> filter)
    : after_(config.after),
      threshold_(std::max<uint64_t>(
          1, static_cast<uint64_t>(static_cast<double>(config.probability) * 0x1p32))),
      stream_(config.stream),
      filter_(std::move(filter)) {}

absl::StatusOr<RowAdmission> RowAdmission::Make(const Config& config) {
  if (config.after <= 1) return RowAdmission(config, std::nullopt);
  CAPSTAN_ASSIGN_OR_RETURN(AdmissionFilter filter, AdmissionFilter::Make(config.filter_keys));
  return RowAdmission(config, std::move(filter));
}

bool RowAdmission::Admits(uint64_t key, int64_t version) {
  if (filter_.has_value() && !filter_->IsNthPush(key, after_)) return false;
  if (threshold_ > UINT32_MAX) return true;
  return Philox4x32(stream_, key, static_cast<uint64_t>(version))[0] < threshold_;
}

absl::Status RowAdmission::Restore(absl::string_view counters) {
  if (filter_.has_value()) return filter_->Restore(counters);
  if (counters.empty()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("an admission filter of ", counters.size(), " bytes: expected none"));
}

}  // namespace capstan::server
