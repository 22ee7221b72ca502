#include "common/examples/parsers/numbers.h"

#include <catch2/catch.hpp>
#include <clocale>
#include <iostream>
#include <limits>
#include <string>

namespace capstan::numbers_test {
namespace {

NumberError FloatError(absl::string_view text) {
  float value = 0;
  return ParseFloat(text, &value);
}

float FloatOf(absl::string_view text) {
  float value = -7;
  INFO(std::string(text));
  CHECK(ParseFloat(text, &value) == NumberError::kNone);
  return value;
}

TEST_CASE("Numbers: floats in all their spellings", "[common][examples]") {
  CHECK(FloatOf("0") == 0.0f);
  CHECK(FloatOf("+1") == 1.0f);
  CHECK(FloatOf("-1") == -1.0f);
  CHECK(FloatOf(".5") == 0.5f);
  CHECK(FloatOf("5.") == 5.0f);
  CHECK(FloatOf("+.25e1") == 2.5f);
  CHECK(FloatOf("1E-3") == 0.001f);
  CHECK(FloatOf("0.1") == 0.1f);
  CHECK(FloatOf("16777217") == 16777216.0f);  // A tie, to even.
  CHECK(FloatOf("3.4028235e38") == std::numeric_limits<float>::max());
  CHECK(FloatOf("1e-45") == std::numeric_limits<float>::denorm_min());
}

TEST_CASE("Numbers: what is nearer to 0 than any float is 0", "[common][examples]") {
  CHECK(FloatOf("1e-50") == 0.0f);
  CHECK(FloatOf("-1e-300") == 0.0f);
}

TEST_CASE("Numbers: what is no finite float is refused by kind", "[common][examples]") {
  for (const char* text : {"", "+", "-", "+-1", "--1", "x", " 1", "1 ", "1e", "1e+", "0x10", "1,5",
                           "1.2.3", ".", "e5", "1f"}) {
    INFO(text);
    CHECK(FloatError(text) == NumberError::kNotANumber);
  }
  for (const char* text : {"nan", "NaN", "-nan", "inf", "-inf", "+Infinity"}) {
    INFO(text);
    CHECK(FloatError(text) == NumberError::kNotFinite);
  }
  for (const char* text : {"3.4028236e38", "-1e39", "1e400"}) {
    INFO(text);
    CHECK(FloatError(text) == NumberError::kOutOfRange);
  }
  CHECK(FloatError(absl::string_view("1\0", 2)) == NumberError::kNotANumber);
  CHECK(ToString(NumberError::kNotANumber) == "is no number");
  CHECK(ToString(NumberError::kNotFinite) == "is not finite");
  CHECK(ToString(NumberError::kOutOfRange) == "is out of range");
}

TEST_CASE("Numbers: whole numbers up to 2^64 - 1", "[common][examples]") {
  uint64_t value = 0;
  CHECK(ParseUint64("18446744073709551615", &value) == NumberError::kNone);
  CHECK(value == std::numeric_limits<uint64_t>::max());
  CHECK(ParseUint64("007", &value) == NumberError::kNone);
  CHECK(value == 7);
  CHECK(ParseUint64("18446744073709551616", &value) == NumberError::kOutOfRange);
  CHECK(ParseUint64("99999999999999999999999", &value) == NumberError::kOutOfRange);
  for (const char* text : {"", "-1", "+1", "1.0", "1e3", "a", " 1", "99999999999999999999999x"}) {
    INFO(text);
    CHECK(ParseUint64(text, &value) == NumberError::kNotANumber);
  }
}

TEST_CASE("Numbers: a decimal comma in the locale changes nothing", "[common][examples]") {
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  if (std::setlocale(LC_NUMERIC, "de_DE.UTF-8") == nullptr) {
    std::cout << "skipped: this host has no locale de_DE.UTF-8\n";
    return;
  }
  CHECK(FloatOf("1.5") == 1.5f);
  CHECK(FloatError("1,5") == NumberError::kNotANumber);
  std::setlocale(LC_NUMERIC, before.c_str());
}

}  // namespace
}  // namespace capstan::numbers_test
