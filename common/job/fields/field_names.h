// Field names: makes diagnostics for names of fields and of enumerations' values that do not exist.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_JOB_FIELDS_FIELD_NAMES_H_
#define CAPSTAN_COMMON_JOB_FIELDS_FIELD_NAMES_H_

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/job/fields/diagnostic.h"

namespace capstan {

// Fewest insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
// REQUIRES: both at most 1,000 bytes (longer ones are cut).
int EditDistance(absl::string_view a, absl::string_view b);

// The candidate nearest to `name`; empty if none is so near that `name` may be a typing error.
std::string Nearest(absl::string_view name, const std::vector<std::string>& candidates);

// "no such field; did you mean \"batch_size\"? training has epochs, batch_size, ..."
// `path` is that of the message in the job, empty for the job itself.
Diagnostic UnknownField(const google::protobuf::Descriptor& message, absl::string_view path,
                        absl::string_view name);

// The same for an enumeration's value.
Diagnostic UnknownEnumValue(const google::protobuf::EnumDescriptor& type, absl::string_view path,
                            absl::string_view name);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_FIELDS_FIELD_NAMES_H_
