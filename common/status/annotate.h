// Annotate: adds what a layer knows in front of an error's message, keeping its code and payloads.
//
//   return Annotate(status, absl::StrCat("reading ", path));   // "reading a.gz: truncated"
#ifndef CAPSTAN_COMMON_STATUS_ANNOTATE_H_
#define CAPSTAN_COMMON_STATUS_ANNOTATE_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace capstan {

inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&annotated](absl::string_view name, const absl::Cord& payload) {
    annotated.SetPayload(name, payload);
  });
  return annotated;
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STATUS_ANNOTATE_H_
