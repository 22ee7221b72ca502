// DurationText: a length of time as people read it.
//
// Thread safety: pure.
#ifndef CAPSTAN_COMMON_TIME_DURATION_TEXT_H_
#define CAPSTAN_COMMON_TIME_DURATION_TEXT_H_

#include <string>

#include "absl/time/time.h"

namespace capstan {

// A text as "45 ms", "0.3 s", "42 s", "3 min 12 s", "2 h 5 min" or "3 d 4 h"; for a negative
// duration "0.0 s", for an infinite one "ever".
std::string DurationText(absl::Duration duration);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TIME_DURATION_TEXT_H_
