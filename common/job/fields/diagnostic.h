// Diagnostic: one error in a job, with what the user needs to correct it.
//
// Thread safety: values.
#ifndef CAPSTAN_COMMON_JOB_FIELDS_DIAGNOSTIC_H_
#define CAPSTAN_COMMON_JOB_FIELDS_DIAGNOSTIC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace capstan {

struct Diagnostic {
  std::string
      field;  // Path from the job: "training.batch_size", "model.layers[2].convolution.filters".
  std::string value;     // The value as text; "nothing" if it is missing.
  std::string expected;  // "at least 1".
  std::string message;   // "got -4, expected at least 1".
  // Above 0: it stands for this many errors, which are not reported one by one.
  int64_t left_out = 0;

  // "training.batch_size: got -4, expected at least 1"; only the message when no field is
  // concerned.
  std::string ToString() const {
    return field.empty() ? message : absl::StrCat(field, ": ", message);
  }
};

// A diagnostic of the usual form, with the message "got <value>, expected <expected>".
inline Diagnostic GotExpected(std::string field, std::string value, std::string expected) {
  std::string message = absl::StrCat("got ", value, ", expected ", expected);
  return {std::move(field), std::move(value), std::move(expected), std::move(message)};
}

// The most entries of a list of errors. If there are more errors, the last entry says how many: a
// large job may have millions.
inline constexpr size_t kDiagnosticsMax = 100;

// Counts one more error in `last`, the last entry of a full list.
inline void CountLeftOut(Diagnostic* last) {
  const int64_t left_out = last->left_out == 0 ? 2 : last->left_out + 1;
  if (last->left_out == 0) *last = {};
  last->left_out = left_out;
  last->message = absl::StrCat("and ", left_out, " more errors");
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_FIELDS_DIAGNOSTIC_H_
