// JobFolders: where on the disk a job writes, and whether two jobs may do so at the same time.
//
// In its output folder a job uses the names of its files (model, metrics, job.json) and of folders
// that it creates. In its checkpoint folder it uses everything. So one job may write into a folder
// inside another job's output folder, but not among its checkpoints, which are removed when newer
// ones become complete.
// Thread safety: values, and a function of its arguments.
#ifndef CAPSTAN_SCHEDULER_CORE_FOLDERS_JOB_FOLDERS_H_
#define CAPSTAN_SCHEDULER_CORE_FOLDERS_JOB_FOLDERS_H_

#include <string>

#include "common/types/ids.h"

namespace capstan::scheduler {

// Absolute, without "." and "..", symbolic links or a "/" at the end, so that equal folders are
// equal strings. Empty: the job writes into none.
struct JobFolders {
  std::string output;
  std::string checkpoints;
  friend bool operator==(const JobFolders&, const JobFolders&) = default;
  // Durable, in the form of scheduler/store/archive.h.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(output, checkpoints);
  }
};

// Why a job with the folders `mine` cannot write while the job `other` does: the field, its value
// and what lies there. Empty: it can.
std::string WhyFoldersClash(const JobFolders& mine, const JobId& other, const JobFolders& others);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_FOLDERS_JOB_FOLDERS_H_
