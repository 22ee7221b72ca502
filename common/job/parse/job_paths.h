// Job paths: every field of a job file that names a file or a folder of a daemon's host.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_JOB_PARSE_JOB_PATHS_H_
#define CAPSTAN_COMMON_JOB_PARSE_JOB_PATHS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/storage/files/allowed_paths.h"
#include "proto/job.pb.h"

namespace capstan {

struct JobPath {
  std::string field;  // "data.train.images".
  std::string* path = nullptr;
};

// Returns all paths that are not empty. The pointers point into `spec`.
std::vector<JobPath> PathsOf(v1::JobSpec* spec);

// Checks that a job of `user` may name the paths in `spec`.
// Errors: kPermissionDenied  one line for each path that it may not: field, path, what is allowed.
absl::Status CheckJobPaths(const AllowedPaths& allowed, absl::string_view user, v1::JobSpec spec);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_PARSE_JOB_PATHS_H_
