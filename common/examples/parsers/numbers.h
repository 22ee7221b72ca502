// Numbers in text, by std::from_chars: independent of the locale, nothing is allocated.
//
// Unlike from_chars, these functions refuse "nan" and "inf", and accept one '+' before a float.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_EXAMPLES_PARSERS_NUMBERS_H_
#define CAPSTAN_COMMON_EXAMPLES_PARSERS_NUMBERS_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace capstan {

enum class NumberError { kNone, kNotANumber, kNotFinite, kOutOfRange };

// "is no number", "is not finite", "is out of range". REQUIRES: not kNone.
absl::string_view ToString(NumberError error);

struct NumberEnd {
  const char* end = nullptr;  // Behind the last character that belongs to the number.
  NumberError error = NumberError::kNone;
};

// Reads the number that [begin, end) starts with. One nearer to 0 than any float becomes 0.
// Errors (*value is unspecified): kNotANumber  it starts with something else.
//                                 kNotFinite   NaN or infinity.
//                                 kOutOfRange  above the largest float (or any double).
NumberEnd ReadFloat(const char* begin, const char* end, float* value);
// Decimal digits only. Errors: kNotANumber; kOutOfRange  above 2^64 - 1.
NumberEnd ReadUint64(const char* begin, const char* end, uint64_t* value);

// The same for a text that is one number and nothing else.
NumberError ParseFloat(absl::string_view text, float* value);
NumberError ParseUint64(absl::string_view text, uint64_t* value);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_PARSERS_NUMBERS_H_
