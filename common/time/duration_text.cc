#include "common/time/duration_text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace capstan {

std::string DurationText(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return "ever";
  if (duration >= absl::Milliseconds(1) && duration < absl::Milliseconds(100)) {
    return absl::StrCat(absl::ToInt64Milliseconds(duration), " ms");
  }
  if (duration <= absl::ZeroDuration()) return "0.0 s";
  // A duration that rounds to 10.0 s is shown without a decimal.
  if (duration < absl::Milliseconds(9950)) {
    return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(duration));
  }
  constexpr int64_t kHour = 3600;
  constexpr int64_t kDay = 24 * kHour;
  const int64_t seconds = absl::ToInt64Seconds(duration + absl::Milliseconds(50));
  if (seconds < 60) return absl::StrCat(seconds, " s");
  if (seconds < kHour) return absl::StrCat(seconds / 60, " min ", seconds % 60, " s");
  if (seconds < 2 * kDay) {
    return absl::StrCat(seconds / kHour, " h ", seconds % kHour / 60, " min");
  }
  return absl::StrCat(seconds / kDay, " d ", seconds % kDay / kHour, " h");
}

}  // namespace capstan
