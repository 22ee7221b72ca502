// ProgramUids: gives each job of this worker a user id, as which the job's programs run.
//
// A job gets a number with its first task here, keeps it as long as one of its tasks runs, and then
// gives it back. Numbers are given in turn, so that each is reused as late as possible: files that
// a job has left outside of its folders do not belong to the next job at once.
// Thread safety: thread-compatible; pure.
// Invariants: (1) no two jobs have the same number; (2) all numbers lie in the range.
#ifndef CAPSTAN_WORKER_DAEMON_PROGRAM_UIDS_H_
#define CAPSTAN_WORKER_DAEMON_PROGRAM_UIDS_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/types/ids.h"

namespace capstan::worker {

// Numbers [first, last] of users who have no account.
struct UidRange {
  uid_t first = 0;
  uid_t last = 0;
  friend bool operator==(const UidRange&, const UidRange&) = default;
};

// The range that systemd gives to services for as long as they run (DynamicUser=), which no
// distribution gives to a person or a package.
inline constexpr UidRange kDynamicUids{61184, 65519};

// Parses "FIRST-LAST".
// Errors: kInvalidArgument  says what was expected: 1 <= FIRST <= LAST <= 4294967293.
absl::StatusOr<UidRange> ParseUidRange(absl::string_view text);

class ProgramUids {
 public:
  // `begin`: any number; the first job gets the number at this place of the range. Daemons of one
  // host begin at different places.
  ProgramUids(const UidRange& range, uint64_t begin);

  // Returns the number of `job`, a task of which is about to start. If the job has none yet, it
  // gets one for which `is_free` returns true.
  // Errors: kResourceExhausted  all numbers are taken; those of `is_free`.
  absl::StatusOr<uid_t> TaskStarts(const JobId& job,
                                   const std::function<absl::StatusOr<bool>(uid_t)>& is_free);
  // A task of `job` has ended. Returns true if it was the last one; then GiveBack may follow.
  // REQUIRES: TaskStarts came before.
  bool TaskEnds(const JobId& job);
  // Frees the number of `job` for other jobs, unless a task of it has started since.
  void GiveBack(const JobId& job);

 private:
  struct Holder {
    uid_t uid = 0;
    int tasks = 0;
  };

  const UidRange range_;
  uint64_t next_;  // The place in the range at which the next search begins.
  std::map<JobId, Holder> holders_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DAEMON_PROGRAM_UIDS_H_
