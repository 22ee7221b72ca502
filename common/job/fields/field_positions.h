// FieldPositions: the position of each field of a job in the file that it came from.
//
// Thread safety: values.
#ifndef CAPSTAN_COMMON_JOB_FIELDS_FIELD_POSITIONS_H_
#define CAPSTAN_COMMON_JOB_FIELDS_FIELD_POSITIONS_H_

#include <map>
#include <string>
#include <vector>

#include "common/job/fields/diagnostic.h"
#include "proto/job.pb.h"

namespace capstan {

// The most levels of messages and lists in a job file; a job needs fewer than 10.
inline constexpr int kNestingMax = 100;

// Counted from 1; columns are bytes. 0: unknown.
struct TextPosition {
  int line = 0;
  int column = 0;
  friend bool operator==(const TextPosition&, const TextPosition&) = default;
};

// Field path ("model.layers[2].name"; a whole list too: "model.layers") -> its first byte.
using FieldPositions = std::map<std::string, TextPosition>;

struct LocatedDiagnostic {
  TextPosition position;
  Diagnostic diagnostic;
};

// The job of a file, or the errors in it. `positions` has the fields read before an error.
struct ParsedJob {
  v1::JobSpec spec;
  FieldPositions positions;
  std::vector<LocatedDiagnostic> errors;  // At most kDiagnosticsMax.

  // Adds the error that `make()` returns (a LocatedDiagnostic), or only counts it if the list is
  // full.
  template <typename Make>
  void AddError(const Make& make) {
    if (errors.size() < kDiagnosticsMax) return errors.push_back(make());
    errors.back().position = {};
    CountLeftOut(&errors.back().diagnostic);
  }
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_FIELDS_FIELD_POSITIONS_H_
