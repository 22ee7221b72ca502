#include "common/data/cifar10.h"

#include <catch2/catch.hpp>

#include "common/data/testing/test_files.h"
#include "common/testing/status_matchers.h"

namespace capstan::cifar10_test {
namespace {

using ::capstan::testing::Bytes;
using ::capstan::testing::Concatenate;
using ::capstan::testing::NoisyBytes;

TEST_CASE("CIFAR-10: planes become interleaved pixels", "[common][data]") {
  const Bytes first = NoisyBytes(3072, 1);
  const Bytes second = NoisyBytes(3072, 2);
  Bytes pixels = {77};
  Bytes labels = {5};
  REQUIRE_OK(AppendCifar10("f", Concatenate({{9}, first, {0}, second}), pixels, labels));
  CHECK(labels == Bytes{5, 9, 0});
  REQUIRE(pixels.size() == 1 + 2 * 3072);
  CHECK(pixels[0] == 77);
  for (size_t y = 0; y < 32; ++y) {
    for (size_t x = 0; x < 32; ++x) {
      for (size_t c = 0; c < 3; ++c) {
        const size_t nhwc = 1 + (y * 32 + x) * 3 + c;
        const size_t planar = c * 1024 + y * 32 + x;
        REQUIRE(pixels[nhwc] == first[planar]);
        REQUIRE(pixels[nhwc + 3072] == second[planar]);
      }
    }
  }
}

TEST_CASE("CIFAR-10: a file that is no whole number of records is refused", "[common][data]") {
  Bytes pixels;
  Bytes labels;
  for (const size_t count : {0, 1, 3072, 3074}) {
    CHECK_STATUS(AppendCifar10("f", Bytes(count, 0), pixels, labels), absl::StatusCode::kDataLoss,
                 "expected a whole number of records of 3073 bytes");
  }
  CHECK(pixels.empty());
  CHECK(labels.empty());
}

TEST_CASE("CIFAR-10: a label above 9 is named and appends nothing", "[common][data]") {
  Bytes pixels;
  Bytes labels;
  const Bytes image = NoisyBytes(3072);
  CHECK_STATUS(AppendCifar10("f", Concatenate({{3}, image, {10}, image}), pixels, labels),
               absl::StatusCode::kInvalidArgument,
               "f: the label of record 1 is out of range, expected 0 to 9");
  CHECK(pixels.empty());
  CHECK(labels.empty());
}

}  // namespace
}  // namespace capstan::cifar10_test
