#include "server/store/sparse/rows/admission_filter.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <string>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"

namespace capstan::server::admission_filter_test {
namespace {

AdmissionFilter MakeFilter(int64_t keys) {
  REQUIRE_OK_AND_ASSIGN(AdmissionFilter filter, AdmissionFilter::Make(keys));
  return filter;
}

int PushesUntilNth(AdmissionFilter& filter, uint64_t key, int n) {
  int pushes = 1;
  while (!filter.IsNthPush(key, n)) ++pushes;
  return pushes;
}

TEST_CASE("AdmissionFilter: the n-th push of a key is told, and every later one",
          "[server][sparse]") {
  const int n = GENERATE(1, 2, 3, 100, 255);
  AdmissionFilter filter = MakeFilter(1000);
  for (uint64_t key = 0; key < 20; ++key) CHECK(PushesUntilNth(filter, key, n) == n);
  CHECK(filter.IsNthPush(7, n));
}

TEST_CASE("AdmissionFilter: at its load few keys are told too early, none too late",
          "[server][sparse]") {
  constexpr int64_t kKeys = 100'000;
  constexpr int kPushes = 3;
  AdmissionFilter filter = MakeFilter(kKeys);
  std::map<uint64_t, int> pushes;
  int64_t early = 0, late = 0, told = 0;
  for (uint64_t i = 0; i < kKeys; ++i) {
    const uint64_t key = MixKey(1, MixKey(2, i) % (kKeys * 2 / 3));
    const int exact = ++pushes[key];
    const bool is_nth = filter.IsNthPush(key, kPushes);
    told += is_nth;
    early += is_nth && exact < kPushes;
    late += !is_nth && exact >= kPushes;
  }
  CHECK(late == 0);
  CHECK(told > 10'000);
  CHECK(early < kKeys / 100);
}

TEST_CASE("AdmissionFilter: it never fills up: a first push stays a first push",
          "[server][sparse]") {
  AdmissionFilter filter = MakeFilter(1000);
  int64_t early = 0;
  constexpr int64_t kKeys = 200'000;
  for (uint64_t key = 0; key < kKeys; ++key) early += filter.IsNthPush(MixKey(3, key), 2);
  CHECK(early < kKeys / 25);  // 0.4 ^ 4 is 1 in 39.
  CHECK(early > 0);
}

TEST_CASE("AdmissionFilter: when it is full, counts are halved", "[server][sparse]") {
  AdmissionFilter filter = MakeFilter(100);
  for (int i = 0; i < 100; ++i) CHECK_FALSE(filter.IsNthPush(1, 255));
  const std::string before(filter.counters());
  uint64_t other = 1'000;
  const auto most = [&] {
    uint8_t value = 0;
    for (const char c : filter.counters()) value = std::max(value, static_cast<uint8_t>(c));
    return int{value};
  };
  CHECK(most() == 100);
  while (most() == 100) filter.IsNthPush(other++, 2);
  CHECK(most() == 50);
  CHECK(other > 1'000 + 80);
  CHECK(other < 1'000 + 120);
}

TEST_CASE("AdmissionFilter: what is saved goes on alike", "[server][sparse]") {
  AdmissionFilter filter = MakeFilter(500);
  const auto push = [](AdmissionFilter& each, uint64_t i) {
    return each.IsNthPush(MixKey(1, i) % 900, 4);
  };
  for (uint64_t i = 0; i < 3000; ++i) push(filter, i);
  AdmissionFilter other = MakeFilter(500);
  REQUIRE_OK(other.Restore(filter.counters()));
  for (uint64_t i = 3000; i < 6000; ++i) {
    if (push(filter, i) != push(other, i)) FAIL("at " << i);
  }
  CHECK(filter.counters() == other.counters());
  CHECK_STATUS(MakeFilter(499 - 8).Restore(filter.counters()), absl::StatusCode::kDataLoss,
               "an admission filter of 4032 bytes: expected 3968");
}

}  // namespace
}  // namespace capstan::server::admission_filter_test
