// Diagnostic: one thing that is wrong in a job, said so that the user can mend it.
//
// Thread safety: values.
#ifndef CAPSTAN_COMMON_JOB_DIAGNOSTIC_H_
#define CAPSTAN_COMMON_JOB_DIAGNOSTIC_H_

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

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_DIAGNOSTIC_H_
