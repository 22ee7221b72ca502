// Checks of a state that is being loaded. The bytes of a store, or of the record that a server kept
// of a job, may be damaged or forged. So a serialize() that loads values for an index, a sum or a
// loop checks them at once, before any computation uses them:
//
//   archive(a, b);
//   CheckLoaded(archive, [this] { return CheckRange("a", a, 0, kMax); });
//
// Thread safety: functions of their arguments.
#ifndef CAPSTAN_SCHEDULER_CORE_MESSAGES_LOADED_CHECK_H_
#define CAPSTAN_SCHEDULER_CORE_MESSAGES_LOADED_CHECK_H_

#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace capstan::scheduler {

// No cluster counts so far: a counter above it is forged, and could overflow.
inline constexpr int64_t kCounterMax = int64_t{1} << 62;

// Errors: kDataLoss  names the field, its value and the expected range, [low, high].
template <typename Value>
absl::Status CheckRange(const char* field, Value value, std::type_identity_t<Value> low,
                        std::type_identity_t<Value> high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(field, ": ", value, ", expected ", low, " to ", high));
}

// The same for a count, from 0.
inline absl::Status CheckCount(const char* field, int64_t value, int64_t high = kCounterMax) {
  return CheckRange(field, value, 0, high);
}
inline absl::Status CheckCount(const char* field, uint64_t value) {
  return CheckRange(field, value, 0, uint64_t{kCounterMax});
}

// If `archive` loads and all was well so far, runs `check()`. An error that it returns fails the
// archive. The form of archives: scheduler/store/archive.h.
template <typename Archive, typename Check>
void CheckLoaded(Archive& archive, Check check) {
  if constexpr (Archive::is_loading::value) {
    if (!archive.ok()) return;
    const absl::Status status = check();
    if (!status.ok()) archive.Fail(std::string(status.message()));
  }
}

// Returns a + b, limited to [0, kCounterMax], because tasks may report any numbers. REQUIRES: a in
// [0, kCounterMax], b in [-kCounterMax, kCounterMax].
inline int64_t AddCount(int64_t a, int64_t b) {
  const int64_t sum = a + b;
  return sum < 0 ? 0 : sum > kCounterMax ? kCounterMax : sum;
}

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_MESSAGES_LOADED_CHECK_H_
