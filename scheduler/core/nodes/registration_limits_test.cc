#include "scheduler/core/nodes/registration_limits.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace capstan::scheduler::registration_limits_test {
namespace {

using absl::StatusCode;

Instant At(double seconds) { return Instant::FromOrigin(absl::Seconds(seconds)); }

TEST_CASE("RegistrationLimits: a flood of new names keeps out new names alone",
          "[scheduler][core]") {
  RegistrationLimits limits({.per_name_max = 3, .new_names_max = 5});
  for (int i = 0; i < 5; ++i) {
    REQUIRE_OK(limits.Count(absl::StrCat("x-", i), /*known=*/false, At(i)));
  }
  CHECK_STATUS(limits.Count("x-5", /*known=*/false, At(10)), StatusCode::kResourceExhausted,
               "\"x-5\" is new, and 5 daemons with new names have registered within 1m");
  REQUIRE_OK(limits.Count("worker-1", /*known=*/true, At(10)));
  REQUIRE_OK(limits.Count("x-4", /*known=*/true, At(59)));
  REQUIRE_OK(limits.Count("x-5", /*known=*/false, At(60)));
}

TEST_CASE("RegistrationLimits: who registers all the time keeps out itself alone",
          "[scheduler][core]") {
  RegistrationLimits limits({.per_name_max = 3, .new_names_max = 5});
  REQUIRE_OK(limits.Count("worker-1", /*known=*/false, At(0)));
  REQUIRE_OK(limits.Count("worker-1", /*known=*/true, At(1)));
  REQUIRE_OK(limits.Count("worker-1", /*known=*/true, At(2)));
  for (int second = 3; second < 60; ++second) {
    CHECK_STATUS(limits.Count("worker-1", /*known=*/true, At(second)),
                 StatusCode::kResourceExhausted, "\"worker-1\" has registered 3 times within 1m");
  }
  REQUIRE_OK(limits.Count("worker-2", /*known=*/true, At(59)));
  REQUIRE_OK(limits.Count("worker-1", /*known=*/true, At(60)));  // Refusals do not count.
}

}  // namespace
}  // namespace capstan::scheduler::registration_limits_test
