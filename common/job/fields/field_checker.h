// FieldChecker: collects diagnostics about the fields of one message of a job.
//
// It knows the path of its message ("model.layers[2]"), so a check names only its own field. All
// methods append to the list given at construction, which has at most kDiagnosticsMax entries (the
// last then says how many errors are left out). A bool result says whether the field is right.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_JOB_FIELDS_FIELD_CHECKER_H_
#define CAPSTAN_COMMON_JOB_FIELDS_FIELD_CHECKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/job/fields/diagnostic.h"

namespace capstan {

// Whether proto3 distinguishes a missing field from zero. kImplicit: it does not, so a message
// about 0 says that the field may be missing.
enum class Presence { kImplicit, kExplicit };

// An interval of real numbers; infinite ends are open in any case, since no infinity is accepted.
struct RealRange {
  enum class End { kOpen, kClosed };
  double low = 0.0;
  End low_end = End::kClosed;
  double high = 0.0;
  End high_end = End::kOpen;
};
RealRange Finite();                             // (-inf, inf)
RealRange Above(double low);                    // (low, inf)
RealRange AtLeast(double low);                  // [low, inf)
RealRange ClosedOpen(double low, double high);  // [low, high)
RealRange OpenOpen(double low, double high);    // (low, high)
RealRange OpenClosed(double low, double high);  // (low, high]
RealRange Closed(double low, double high);      // [low, high]

class FieldChecker {
 public:
  // `path` is empty for the job itself. `diagnostics` outlives the checker.
  FieldChecker(std::string path, std::vector<Diagnostic>* diagnostics);

  // A checker for the message in `field`.
  FieldChecker In(absl::string_view field) const;

  bool IntegerAtLeast(absl::string_view field, int64_t value, int64_t low, Presence presence);
  // Both ends belong to the range.
  bool IntegerBetween(absl::string_view field, int64_t value, int64_t low, int64_t high,
                      Presence presence);
  bool Real(absl::string_view field, double value, const RealRange& range, Presence presence);

  // Reports that `field` holds `value`; `value` is what the user would recognise.
  void Wrong(absl::string_view field, absl::string_view value, absl::string_view expected);
  // Reports that `field` is not there.
  void Missing(absl::string_view field, absl::string_view expected);

  std::string Path(absl::string_view field) const;

 private:
  std::string path_;
  std::vector<Diagnostic>* diagnostics_;  // Not owned.
};

// `"value"`, cut to 80 bytes, unprintable bytes escaped.
std::string Quote(absl::string_view value);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_FIELDS_FIELD_CHECKER_H_
