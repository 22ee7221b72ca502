// Job access: which jobs a caller may read and change, by the owner of the job.
//
//   caller                               reads        changes
//   ----------------------------------   ----------   ----------
//   none: a daemon without credentials   all          all
//   admin                                all          all
//   user                                 own          own
//   reader, metrics                      all          none
//   scheduler, server, worker            all          none
//
// The table of call_policy.h judges first, by role alone: a reader or a node has few methods. What
// a node does is judged by what it runs, not by an owner.
// A job without an owner, from before jobs had owners or from a cluster without credentials,
// belongs to no user.
// Called by the scheduler, servers and workers. Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_SECURITY_JOB_ACCESS_H_
#define CAPSTAN_COMMON_SECURITY_JOB_ACCESS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/security/certificates/identity.h"

namespace capstan {

// Returns the owner of a job that `caller` submits: role and name, as in "user/ann". Empty if the
// scheduler has no credentials.
std::string OwnerFor(const std::optional<Identity>& caller);

// `owner`: as OwnerFor() returned it when the job was submitted.
bool MayRead(const std::optional<Identity>& caller, absl::string_view owner);
bool MayChange(const std::optional<Identity>& caller, absl::string_view owner);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_JOB_ACCESS_H_
