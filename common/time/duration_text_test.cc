#include "common/time/duration_text.h"

#include <catch2/catch.hpp>

namespace capstan::duration_text_test {
namespace {

TEST_CASE("Duration text: durations take the unit that fits", "[time]") {
  CHECK(DurationText(absl::Seconds(-1)) == "0.0 s");
  CHECK(DurationText(absl::ZeroDuration()) == "0.0 s");
  CHECK(DurationText(absl::Microseconds(300)) == "0.0 s");
  CHECK(DurationText(absl::Milliseconds(45)) == "45 ms");
  CHECK(DurationText(absl::Nanoseconds(622656754)) == "0.6 s");
  CHECK(DurationText(absl::Milliseconds(9940)) == "9.9 s");
  CHECK(DurationText(absl::Milliseconds(9970)) == "10 s");
  CHECK(DurationText(absl::Seconds(42)) == "42 s");
  CHECK(DurationText(absl::Seconds(60)) == "1 min 0 s");
  CHECK(DurationText(absl::Seconds(192)) == "3 min 12 s");
  CHECK(DurationText(absl::Minutes(125)) == "2 h 5 min");
  CHECK(DurationText(absl::Hours(47)) == "47 h 0 min");
  CHECK(DurationText(absl::Hours(52)) == "2 d 4 h");
  CHECK(DurationText(absl::InfiniteDuration()) == "ever");
}

}  // namespace
}  // namespace capstan::duration_text_test
