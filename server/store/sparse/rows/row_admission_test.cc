#include "server/store/sparse/rows/row_admission.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::server::row_admission_test {
namespace {

RowAdmission MakeAdmission(const RowAdmission::Config& config) {
  REQUIRE_OK_AND_ASSIGN(RowAdmission admission, RowAdmission::Make(config));
  return admission;
}

TEST_CASE("RowAdmission: by default every key has a row at once", "[server][sparse]") {
  RowAdmission admission = MakeAdmission({});
  CHECK(admission.admits_all());
  CHECK(admission.bytes() == 0);
  CHECK(admission.Admits(1, 1));
}

TEST_CASE("RowAdmission: a probability is kept, and a draw is the key's and the version's",
          "[server][sparse]") {
  const RowAdmission::Config config = {.probability = 0.25f,
                                       .stream = RowAdmission::StreamOf(1, TableId(0))};
  RowAdmission admission = MakeAdmission(config);
  RowAdmission same = MakeAdmission(config);
  RowAdmission other =
      MakeAdmission({.probability = 0.25f, .stream = RowAdmission::StreamOf(1, TableId(1))});
  CHECK_FALSE(admission.admits_all());
  int admitted = 0, differ = 0;
  for (uint64_t key = 0; key < 100; ++key) {
    for (int64_t version = 1; version <= 100; ++version) {
      const bool admits = admission.Admits(key, version);
      admitted += admits;
      differ += admits != other.Admits(key, version);
      if (admits != same.Admits(key, version)) FAIL("key " << key);
    }
  }
  CHECK(admitted > 2300);
  CHECK(admitted < 2700);
  CHECK(differ > 3000);
}

TEST_CASE("RowAdmission: both rules together: the n-th push and those after it draw",
          "[server][sparse]") {
  RowAdmission admission =
      MakeAdmission({.after = 3, .filter_keys = 1000, .probability = 0.5f, .stream = 1});
  int at_once = 0;
  for (uint64_t key = 0; key < 100; ++key) {
    CHECK_FALSE(admission.Admits(key, 1));
    CHECK_FALSE(admission.Admits(key, 2));
    at_once += admission.Admits(key, 3);
  }
  CHECK(at_once > 30);
  CHECK(at_once < 70);
}

TEST_CASE("RowAdmission: what is saved fits, or is refused", "[server][sparse]") {
  RowAdmission counting = MakeAdmission({.after = 2, .filter_keys = 8});
  CHECK_FALSE(counting.Admits(1, 1));
  RowAdmission other = MakeAdmission({.after = 2, .filter_keys = 8});
  REQUIRE_OK(other.Restore(counting.counters()));
  CHECK(other.Admits(1, 2));
  CHECK_STATUS(MakeAdmission({}).Restore(counting.counters()), absl::StatusCode::kDataLoss,
               "an admission filter of 64 bytes: expected none");
  CHECK_STATUS(other.Restore(""), absl::StatusCode::kDataLoss, "0 bytes: expected 64");
}

}  // namespace
}  // namespace capstan::server::row_admission_test
