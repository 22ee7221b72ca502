#include "common/examples/parsers/numbers.h"

#include <charconv>
#include <cmath>
#include <system_error>

namespace capstan {
namespace {

// from_chars reports the same error for a float that is too large and for one too near to 0.
NumberError FloatOutOfRange(const char* begin, const char* end, float* value) {
  double wide = 0;
  if (std::from_chars(begin, end, wide).ec != std::errc() || std::abs(wide) > 1) {
    return NumberError::kOutOfRange;
  }
  *value = static_cast<float>(wide);
  return NumberError::kNone;
}

}  // namespace

absl::string_view ToString(NumberError error) {
  if (error == NumberError::kNotFinite) return "is not finite";
  return error == NumberError::kOutOfRange ? "is out of range" : "is no number";
}

NumberEnd ReadFloat(const char* begin, const char* end, float* value) {
  if (begin < end && *begin == '+') {
    ++begin;
    if (begin < end && *begin == '-') return {begin, NumberError::kNotANumber};
  }
  const std::from_chars_result read = std::from_chars(begin, end, *value);
  if (read.ec == std::errc::result_out_of_range) {
    return {read.ptr, FloatOutOfRange(begin, end, value)};
  }
  if (read.ec != std::errc()) return {read.ptr, NumberError::kNotANumber};
  if (!std::isfinite(*value)) return {read.ptr, NumberError::kNotFinite};
  return {read.ptr, NumberError::kNone};
}

NumberEnd ReadUint64(const char* begin, const char* end, uint64_t* value) {
  const std::from_chars_result read = std::from_chars(begin, end, *value);
  if (read.ec == std::errc::result_out_of_range) return {read.ptr, NumberError::kOutOfRange};
  if (read.ec != std::errc()) return {read.ptr, NumberError::kNotANumber};
  return {read.ptr, NumberError::kNone};
}

NumberError ParseFloat(absl::string_view text, float* value) {
  const char* const end = text.data() + text.size();
  const NumberEnd read = ReadFloat(text.data(), end, value);
  return read.end == end ? read.error : NumberError::kNotANumber;
}

NumberError ParseUint64(absl::string_view text, uint64_t* value) {
  const char* const end = text.data() + text.size();
  const NumberEnd read = ReadUint64(text.data(), end, value);
  return read.end == end ? read.error : NumberError::kNotANumber;
}

}  // namespace capstan
