#include "scheduler/core/plan/training_time.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace capstan::scheduler {
namespace {

constexpr int kTicksPerTtl = 64;

absl::Duration TickOf(int64_t ttl_seconds) {
  if (ttl_seconds == 0) return absl::ZeroDuration();
  return std::max(absl::Seconds(ttl_seconds) / kTicksPerTtl, absl::Seconds(1));
}

}  // namespace

absl::Status CheckTrained(absl::Duration trained) {
  if (trained >= absl::ZeroDuration() && trained < absl::InfiniteDuration()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat("trained: ", absl::FormatDuration(trained), ", expected 0 or more"));
}

TrainingTime::TrainingTime(int64_t ttl_seconds) : tick_(TickOf(ttl_seconds)) {}

void TrainingTime::Count(bool trains, Instant now) {
  if (tick_ == absl::ZeroDuration()) return;
  if (trains_since_) trained_ += now - *trains_since_;
  const bool counts = trains && skipped_ != now;
  trains_since_ = counts ? std::make_optional(now) : std::nullopt;
  if (counts) skipped_.reset();
}

void TrainingTime::Skip(Instant now) {
  if (!trains_since_ && !skipped_) return;
  trains_since_.reset();
  skipped_ = now;
}

void TrainingTime::Set(absl::Duration trained) {
  if (tick_ == absl::ZeroDuration()) return;
  trained_ = trained;
  trains_since_.reset();
}

int64_t TrainingTime::ticks_seconds() const {
  if (tick_ == absl::ZeroDuration()) return 0;
  return absl::ToInt64Seconds(absl::Floor(trained_, tick_));
}

Instant TrainingTime::NextTick() const {
  if (!trains_since_) return Instant::InfiniteFuture();
  return *trains_since_ + (tick_ - trained_ % tick_);
}

}  // namespace capstan::scheduler
