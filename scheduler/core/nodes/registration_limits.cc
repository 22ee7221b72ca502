#include "scheduler/core/nodes/registration_limits.h"

#include "absl/strings/str_cat.h"

namespace capstan::scheduler {

absl::Status RegistrationLimits::Count(const NodeId& name, bool known, Instant now) {
  if (now >= window_end_) {
    window_end_ = now + options_.window;
    counts_.clear();
    new_names_ = 0;
  }
  if (!known && new_names_ >= options_.new_names_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "name: \"", name, "\" is new, and ", new_names_,
        " daemons with new names have registered within ", absl::FormatDuration(options_.window),
        ", expected at most as many; ask again"));
  }
  const auto found = counts_.find(name);
  if (found != counts_.end() && found->second >= options_.per_name_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "name: \"", name, "\" has registered ", found->second, " times within ",
        absl::FormatDuration(options_.window), ", expected at most as many; ask again"));
  }
  ++counts_[name];
  if (!known) ++new_names_;
  return absl::OkStatus();
}

}  // namespace capstan::scheduler
