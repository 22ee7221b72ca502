#include "common/data/idx.h"

#include <catch2/catch.hpp>

#include "common/data/testing/test_files.h"
#include "common/testing/status_matchers.h"

namespace capstan::idx_test {
namespace {

using ::capstan::testing::Bytes;
using ::capstan::testing::IdxFile;
using ::capstan::testing::IdxImagesFile;
using ::capstan::testing::IdxLabelsFile;
using ::capstan::testing::NoisyBytes;

TEST_CASE("IDX: images keep their sizes and pixels", "[common][data]") {
  REQUIRE_OK_AND_ASSIGN(const IdxImages images, ParseIdxImages("a", IdxImagesFile(3, 4, 5)));
  CHECK(images.count == 3);
  CHECK(images.h == 4);
  CHECK(images.w == 5);
  CHECK(images.pixels == NoisyBytes(60));
}

TEST_CASE("IDX: labels from 0 to classes - 1 are taken", "[common][data]") {
  REQUIRE_OK_AND_ASSIGN(const Bytes labels, ParseIdxLabels("a", IdxLabelsFile({0, 9, 3}), 10));
  CHECK(labels == Bytes{0, 9, 3});
}

TEST_CASE("IDX: a label out of range is named by index and value", "[common][data]") {
  CHECK_STATUS(ParseIdxLabels("f", IdxLabelsFile({0, 9, 10, 11}), 10),
               absl::StatusCode::kInvalidArgument,
               "f: label number 2 is out of range, expected 0 to 9");
}

TEST_CASE("IDX: a wrong magic number is named with the expected one", "[common][data]") {
  CHECK_STATUS(ParseIdxImages("f", IdxLabelsFile({1, 2})), absl::StatusCode::kDataLoss,
               "f: magic number of another format, expected 0x00000803");
  CHECK_STATUS(ParseIdxLabels("f", IdxImagesFile(1, 1, 1), 10), absl::StatusCode::kDataLoss,
               "magic number of another format, expected 0x00000801");
}

TEST_CASE("IDX: a file shorter than its header is refused", "[common][data]") {
  const Bytes whole = IdxImagesFile(1, 1, 1);
  for (size_t count = 0; count < 16; ++count) {
    CHECK_STATUS(ParseIdxImages("f", Bytes(whole.begin(), whole.begin() + static_cast<int>(count))),
                 absl::StatusCode::kDataLoss, "expected an IDX header of 16");
  }
}

TEST_CASE("IDX: a header that lies about sizes is refused", "[common][data]") {
  const Bytes body = NoisyBytes(60);
  SECTION("more images than there are") {
    CHECK_STATUS(ParseIdxImages("f", IdxFile(0x803, {4, 4, 5}, body)), absl::StatusCode::kDataLoss,
                 "f: 60 bytes after the header, expected 4 x 4 x 5 = 80: truncated");
  }
  SECTION("fewer images than there are") {
    CHECK_STATUS(ParseIdxImages("f", IdxFile(0x803, {2, 4, 5}, body)), absl::StatusCode::kDataLoss,
                 "expected 2 x 4 x 5 = 40: trailing bytes");
  }
  SECTION("a product that overflows 64 bits, once to the very size of the body") {
    CHECK_STATUS(ParseIdxImages("f", IdxFile(0x803, {0xffffffff, 0xffffffff, 0xffffffff}, body)),
                 absl::StatusCode::kDataLoss, "expected 4294967295 x 4294967295 x 4294967295");
    CHECK_STATUS(ParseIdxImages("f", IdxFile(0x803, {1u << 31, 1u << 31, 4}, {})),
                 absl::StatusCode::kDataLoss, "expected 2147483648 x 2147483648 x 4:");
  }
  SECTION("a dimension of zero") {
    CHECK_STATUS(ParseIdxImages("f", IdxFile(0x803, {0, 28, 28}, {})), absl::StatusCode::kDataLoss,
                 "0 x 28 x 28 images, expected at least 1 each");
    CHECK_STATUS(ParseIdxLabels("f", IdxFile(0x801, {0}, {}), 10), absl::StatusCode::kDataLoss,
                 "expected at least 1");
  }
  SECTION("labels") {
    CHECK_STATUS(ParseIdxLabels("f", IdxFile(0x801, {3}, {1, 2}), 10), absl::StatusCode::kDataLoss,
                 "2 bytes after the header, expected 3");
    CHECK_STATUS(ParseIdxLabels("f", IdxFile(0x801, {1}, {1, 2}), 10), absl::StatusCode::kDataLoss,
                 "trailing bytes");
  }
}

}  // namespace
}  // namespace capstan::idx_test
