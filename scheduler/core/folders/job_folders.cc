#include "scheduler/core/folders/job_folders.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace capstan::scheduler {
namespace {

// Returns true if `path` is `folder`, or lies in it.
bool IsWithin(const std::string& path, const std::string& folder) {
  if (path.empty() || folder.empty()) return false;
  return path == folder || folder == "/" || absl::StartsWith(path, absl::StrCat(folder, "/"));
}

}  // namespace

std::string WhyFoldersClash(const JobFolders& mine, const JobId& other, const JobFolders& others) {
  if (!mine.output.empty() && mine.output == others.output) {
    return absl::StrCat("output.directory: ", mine.output, " is the output folder of ", other);
  }
  if (IsWithin(mine.output, others.checkpoints)) {
    return absl::StrCat("output.directory: ", mine.output, " lies in ", others.checkpoints,
                        ", the checkpoints of ", other);
  }
  if (IsWithin(others.output, mine.checkpoints)) {
    return absl::StrCat("checkpoints.directory: in ", mine.checkpoints, " lies ", others.output,
                        ", the output folder of ", other);
  }
  if (IsWithin(mine.checkpoints, others.checkpoints) ||
      IsWithin(others.checkpoints, mine.checkpoints)) {
    return absl::StrCat("checkpoints.directory: ", mine.checkpoints, " and ", others.checkpoints,
                        ", the checkpoints of ", other, ", lie in each other");
  }
  return "";
}

}  // namespace capstan::scheduler
