// Schema version: the versions of durable states, by which a Capstan decides whether it can read
// the states of an older or newer one.
//
// Durable states (rows of a store, records beside logs, job_state of checkpoints) are in the form
// of archive.h, which lets a newer Capstan read what an older one wrote. Two numbers go with them:
//
//   kFieldsVersion  counts the times that something was appended: a value to a serialize(), a value
//                   to an enum, a kind of row. A newer Capstan reads older states: what is missing
//                   has its default. An older one would skip what it does not know, and lose it
//                   with its next write, so it refuses states of a higher version.
//   kSchemaVersion  counts the changes of what was there already: the meaning, unit or kind of a
//                   value. States of another schema version are refused. The job_state of
//                   checkpoints has kResumeFormat (state_codec.cc) instead, which a change of any
//                   type within ResumePoint raises, too.
//
// A store has the versions of its newest writer, from that writer's first write on: after that,
// only a backup of the store leads back to the older Capstan. Each pair of versions that is read
// has a store in testdata/ (scheduler/state/golden_store_test.cc).
#ifndef CAPSTAN_SCHEDULER_STORE_SCHEMA_VERSION_H_
#define CAPSTAN_SCHEDULER_STORE_SCHEMA_VERSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace capstan::scheduler {

inline constexpr int64_t kSchemaVersion = 28;
inline constexpr int64_t kFieldsVersion = 5;

// Checks that this Capstan may read and replace what another one has written.
// Errors: kFailedPrecondition  names both versions.
inline absl::Status CheckVersions(int64_t schema, int64_t fields) {
  if (schema != kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat("schema version ", schema,
                                                      ", this scheduler reads ", kSchemaVersion,
                                                      "; use the Capstan release that wrote it"));
  }
  if (fields >= 0 && fields <= kFieldsVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("fields version ", fields, ", this scheduler reads those up to ", kFieldsVersion,
                   "; use the Capstan release that wrote it, or a newer one"));
}

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STORE_SCHEMA_VERSION_H_
