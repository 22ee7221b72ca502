#include "common/security/renewed_capability.h"

#include <catch2/catch.hpp>

#include "common/testing/status_matchers.h"

namespace capstan::renewed_capability_test {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

std::string ExpiringAt(absl::Time expiry) {
  REQUIRE_OK_AND_ASSIGN(const CapabilityKey key,
                        CapabilityKey::FromBytes(std::string(CapabilityKey::kBytes, 'k')));
  return MintCapability(key, {.job = "ctr-1", .rank = {}, .incarnation = {}, .expiry = expiry});
}

TEST_CASE("Renewed capability: a new one is asked for when half of the day is over", "[security]") {
  const std::string first = ExpiringAt(kStart + absl::Hours(24));
  const std::string second = ExpiringAt(kStart + absl::Hours(36));
  int asked = 0;
  RenewedCapability capability(first, [&] {
    ++asked;
    return second;
  });
  CHECK(capability.Get(kStart) == first);
  CHECK(capability.Get(kStart + absl::Hours(12) - absl::Seconds(1)) == first);
  CHECK(asked == 0);
  CHECK(capability.Get(kStart + absl::Hours(12)) == second);
  CHECK(capability.Get(kStart + absl::Hours(23)) == second);
  CHECK(asked == 1);
}

TEST_CASE("Renewed capability: without an answer it stays, and is asked for once a minute",
          "[security]") {
  const std::string first = ExpiringAt(kStart);
  const std::string second = ExpiringAt(kStart + absl::Hours(24));
  int asked = 0;
  absl::StatusOr<std::string> answer = absl::UnavailableError("away");
  RenewedCapability capability(first, [&] {
    ++asked;
    return answer;
  });
  for (int second_of = 0; second_of < 60; ++second_of) {
    CHECK(capability.Get(kStart + absl::Seconds(second_of)) == first);
  }
  CHECK(asked == 1);
  SECTION("the scheduler is there again") {
    answer = second;
    CHECK(capability.Get(kStart + absl::Seconds(60)) == second);
  }
  SECTION("an answer that ends soon is not asked for at once") {
    answer = first;
    CHECK(capability.Get(kStart + absl::Seconds(60)) == first);
    CHECK(capability.Get(kStart + absl::Seconds(119)) == first);
  }
  CHECK(asked == 2);
}

TEST_CASE("Renewed capability: one that is none is not replaced", "[security]") {
  const std::string bytes = GENERATE("", "no capability");
  RenewedCapability capability(bytes, []() -> absl::StatusOr<std::string> {
    FAIL("it is not asked for");
    return "";
  });
  CHECK(capability.Get(kStart) == bytes);
}

}  // namespace
}  // namespace capstan::renewed_capability_test
