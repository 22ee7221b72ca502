#include "server/core/messages/clock_ticks.h"

#include "absl/strings/str_cat.h"

namespace capstan::server {
namespace {

constexpr int64_t kMergedPart = 128;

}  // namespace

void ClockTicks::Note(int64_t clock_seconds, Version version) {
  const int64_t before = ticks_.empty() ? 0 : ticks_.back().clock_seconds;
  if (ttl_seconds_ == 0 || clock_seconds <= before) return;
  // The newest tick tells the time, however close it is to the one before.
  const int64_t apart = (ttl_seconds_ + kMergedPart - 1) / kMergedPart;
  const size_t count = ticks_.size();
  if (count >= 2 && before - ticks_[count - 2].clock_seconds < apart) ticks_.pop_back();
  ticks_.push_back({.clock_seconds = clock_seconds, .version = version});
  auto first = ticks_.begin();
  while (first + 1 != ticks_.end() && (first + 1)->clock_seconds <= clock_seconds - ttl_seconds_) {
    ++first;
  }
  ticks_.erase(ticks_.begin(), first);
}

Version ClockTicks::EvictBefore() const {
  if (ticks_.empty()) return Version(0);
  const bool is_old = ticks_.front().clock_seconds <= ticks_.back().clock_seconds - ttl_seconds_;
  return is_old ? ticks_.front().version.Next() : Version(0);
}

absl::Status ClockTicks::Restore(const std::vector<ClockTick>& ticks, Version version) {
  if (ticks.size() > kTicksMax) {
    return absl::DataLossError(absl::StrCat(ticks.size(), " ticks: expected at most ", kTicksMax));
  }
  ClockTick before;
  for (const ClockTick& tick : ticks) {
    if (tick.clock_seconds <= before.clock_seconds || tick.version < before.version ||
        tick.version > version) {
      return absl::DataLossError(absl::StrCat("tick at ", tick.clock_seconds, " s, of version ",
                                              tick.version.value(), ": expected more than ",
                                              before.clock_seconds, " s, and version ",
                                              before.version.value(), " to ", version.value()));
    }
    before = tick;
  }
  if (ttl_seconds_ > 0) ticks_ = ticks;
  return absl::OkStatus();
}

}  // namespace capstan::server
