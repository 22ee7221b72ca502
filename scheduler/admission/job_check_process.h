// CheckJobInChild: CheckJob in a child process, so that data which makes a parser crash, hang or
// take all memory ends the submission of a job and not the scheduler.
//
// The child is the scheduler's own program, run with kCheckJobFlag: a process with gRPC's threads
// must not fork without an exec. It gets the job on standard input and limits itself (memory,
// processor time, no files, no core dump, no new privileges) before it opens any of the job's
// files. Its answer comes on standard output, is bounded, and is checked like a message of a peer,
// since an attacker who takes over the child may send anything. It runs as the scheduler's user and
// can read what the scheduler can.
//
//      request: JobCheckRequest
//      answer:  bytes of the message (8, little-endian), JobCheckAnswer, initial values (fp32)
//
// Thread safety: thread-safe functions. The child is killed when the thread that called ends.
#ifndef CAPSTAN_SCHEDULER_ADMISSION_JOB_CHECK_PROCESS_H_
#define CAPSTAN_SCHEDULER_ADMISSION_JOB_CHECK_PROCESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/job/check/check_job.h"
#include "proto/job.pb.h"

namespace capstan::scheduler {

inline constexpr char kCheckJobFlag[] = "--check-job";  // The program's only argument.

struct JobCheckLimits {
  int64_t memory_bytes = int64_t{16} << 30;  // > 0. The largest images of a split take 8 GiB.
  absl::Duration time = absl::Minutes(30);   // > 0. Wall time, and likewise processor time.
  std::vector<std::string> more_paths;       // The child may read them, beside Confinement().
  std::string program = "/proc/self/exe";    // For tests.
  std::vector<std::string> args = {kCheckJobFlag};
};

// `stop`: a descriptor that becomes readable when the check is to be given up; -1: never.
// Errors: kInvalidArgument  the check was stopped: says whether by memory, time or a crash, what
//                           the limit is, and how to change it.
//         kUnavailable      the child cannot be started, or the check was given up.
absl::StatusOr<JobCheck> CheckJobInChild(const JobCheckLimits& limits, const v1::JobSpec& spec,
                                         int stop = -1);

// False in builds with a sanitizer, which takes terabytes of addresses for itself.
bool LimitsMemory();

// The main function of the child. Returns its exit code.
int RunJobCheck();

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_ADMISSION_JOB_CHECK_PROCESS_H_
