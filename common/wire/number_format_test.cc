#include "common/wire/number_format.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::number_format_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<uint16_t> Encoded(NumberFormat format, const std::vector<float>& values) {
  std::string bytes(values.size() * 2 + 1, '\0');
  EncodeNumbers(format, values, bytes.data() + 1);  // Unaligned.
  std::vector<uint16_t> halves(values.size());
  std::memcpy(halves.data(), bytes.data() + 1, values.size() * 2);
  return halves;
}

std::vector<float> Decoded(NumberFormat format, const std::vector<uint16_t>& halves) {
  std::string bytes(halves.size() * 2 + 1, '\0');
  std::memcpy(bytes.data() + 1, halves.data(), halves.size() * 2);
  std::vector<float> values(halves.size());
  DecodeNumbers(format, bytes.data() + 1, absl::MakeSpan(values));
  return values;
}

std::vector<uint16_t> AllHalves() {
  std::vector<uint16_t> all;
  for (uint32_t i = 0; i < 65536; ++i) all.push_back(static_cast<uint16_t>(i));
  return all;
}

// The value of a half as its bits say, by arithmetic in double.
double Meaning(uint16_t half, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int exponent = (half & 0x7fff) >> fraction_bits;
  const int fraction = half & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

bool IsFinite(uint16_t half, int exponent_bits) {
  const int mask = ((1 << exponent_bits) - 1) << (15 - exponent_bits);
  return (half & mask) != mask;
}

TEST_CASE("Number formats: every half means what its bits say, and survives the round trip",
          "[wire]") {
  const auto [format, exponent_bits] =
      GENERATE(table<NumberFormat, int>({{NumberFormat::kBf16, 8}, {NumberFormat::kFp16, 5}}));
  const std::vector<uint16_t> all = AllHalves();
  const std::vector<float> values = Decoded(format, all);
  const std::vector<uint16_t> back = Encoded(format, values);
  for (size_t i = 0; i < all.size(); ++i) {
    if (IsFinite(all[i], exponent_bits)) {
      REQUIRE(static_cast<double>(values[i]) == Meaning(all[i], exponent_bits));
      REQUIRE(std::signbit(values[i]) == ((all[i] & 0x8000) != 0));
      REQUIRE(back[i] == all[i]);
    } else if (std::isnan(values[i])) {
      REQUIRE(std::isnan(Decoded(format, {back[i]})[0]));
    } else {
      REQUIRE(std::isinf(values[i]));
      REQUIRE(back[i] == all[i]);
    }
  }
}

TEST_CASE("Number formats: between two halves the nearer is taken, and the even one of two equals",
          "[wire]") {
  const auto [format, exponent_bits] =
      GENERATE(table<NumberFormat, int>({{NumberFormat::kBf16, 8}, {NumberFormat::kFp16, 5}}));
  for (uint32_t low = 0; low < 0x7fff; ++low) {
    const auto a = static_cast<uint16_t>(low), b = static_cast<uint16_t>(low + 1);
    if (!IsFinite(a, exponent_bits) || !IsFinite(b, exponent_bits)) continue;
    const double below = Meaning(a, exponent_bits), above = Meaning(b, exponent_bits);
    const auto middle = static_cast<float>((below + above) / 2);
    if (static_cast<double>(middle) != (below + above) / 2) continue;  // No float: bf16 denormals.
    const std::vector<float> values = {middle, std::nextafter(middle, 0.0f),
                                       std::nextafter(middle, kInfinity), -middle};
    const std::vector<uint16_t> halves = Encoded(format, values);
    const uint16_t even = (a & 1) == 0 ? a : b;
    REQUIRE(halves[0] == even);
    REQUIRE(halves[1] == a);
    REQUIRE(halves[2] == b);
    REQUIRE(halves[3] == (even | 0x8000));
  }
}

TEST_CASE("Number formats: what is too large, infinite or no number", "[wire]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto loud = std::bit_cast<float>(0x7f800001u);  // Its payload is lost by cutting alone.
  const std::vector<float> values = {65504.0f,   65519.996f, 65520.0f, -1e30f, kInfinity,
                                     -kInfinity, nan,        loud,     3.4e38f};
  const std::vector<float> fp16 =
      Decoded(NumberFormat::kFp16, Encoded(NumberFormat::kFp16, values));
  CHECK(fp16[0] == 65504.0f);
  CHECK(fp16[1] == 65504.0f);
  CHECK(fp16[2] == kInfinity);
  CHECK(fp16[3] == -kInfinity);
  CHECK(fp16[4] == kInfinity);
  CHECK(fp16[5] == -kInfinity);
  CHECK(std::isnan(fp16[6]));
  CHECK(std::isnan(fp16[7]));
  const std::vector<float> bf16 =
      Decoded(NumberFormat::kBf16, Encoded(NumberFormat::kBf16, values));
  CHECK(bf16[4] == kInfinity);
  CHECK(std::isnan(bf16[6]));
  CHECK(std::isnan(bf16[7]));
  CHECK(bf16[8] == kInfinity);  // Nearer to 2^128 than to the largest bf16.
}

TEST_CASE("Number formats: any length gives the bits of one number at a time", "[wire]") {
  const NumberFormat format =
      GENERATE(NumberFormat::kFp32, NumberFormat::kBf16, NumberFormat::kFp16);
  std::vector<float> values;
  for (int i = 0; i < 67; ++i)
    values.push_back(std::ldexp(1.0f + 0.0137f * static_cast<float>(i), i - 40));
  const auto bytes = static_cast<size_t>(BytesOf(format));
  for (size_t n = 0; n <= values.size(); ++n) {
    std::string together(n * bytes, '\0'), single(n * bytes, '\0');
    EncodeNumbers(format, absl::MakeConstSpan(values).first(n), together.data());
    for (size_t i = 0; i < n; ++i) EncodeNumbers(format, {&values[i], 1}, &single[i * bytes]);
    CHECK(together == single);
    std::vector<float> all(n), one(n);
    DecodeNumbers(format, together.data(), absl::MakeSpan(all));
    for (size_t i = 0; i < n; ++i) DecodeNumbers(format, &together[i * bytes], {&one[i], 1});
    CHECK(all == one);
  }
}

TEST_CASE("Number formats: the protocol's types there and back", "[wire]") {
  for (const NumberFormat format :
       {NumberFormat::kFp32, NumberFormat::kBf16, NumberFormat::kFp16}) {
    REQUIRE_OK_AND_ASSIGN(const NumberFormat back, FormatOf(TypeOf(format)));
    CHECK(back == format);
  }
  CHECK_STATUS(FormatOf(v1::VALUE_TYPE_UNSPECIFIED), absl::StatusCode::kInvalidArgument,
               "value_type 0: expected FLOAT32, BFLOAT16 or FLOAT16");
  CHECK_STATUS(FormatOf(static_cast<v1::ValueType>(9)), absl::StatusCode::kInvalidArgument,
               "value_type 9: expected FLOAT32, BFLOAT16 or FLOAT16");
}

}  // namespace
}  // namespace capstan::number_format_test
