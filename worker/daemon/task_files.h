// TaskFiles: the files that a worker daemon keeps for one incarnation of a task.
//
//   <work dir>/<job id>/<rank>-<incarnation>/task.textproto  the TaskAssignment it was started
//                                             with; only its owner reads it: it has the capability
//                                           /task.log        its output, kept after its end
//                                           /.export-<rank>-<incarnation>/  a model on its way to
//                                             the scheduler's host (worker/task/model_place.h)
//
// The files of the newest ended tasks are kept; those of older ones are deleted, and no others.
// Job ids come from the network: only plain file names are accepted.
// Thread safety: functions of their arguments and the disk.
#ifndef CAPSTAN_WORKER_DAEMON_TASK_FILES_H_
#define CAPSTAN_WORKER_DAEMON_TASK_FILES_H_

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "worker/daemon/task_table.h"

namespace capstan::worker {

struct TaskFiles {
  std::string folder;
  std::string spec;
  std::string log;
};

// Errors: kInvalidArgument  the job id is not 1 to 128 characters of [A-Za-z0-9_.-], or starts with
//                           '.'; the rank is negative; the incarnation is 0.
absl::StatusOr<TaskFiles> TaskFilesOf(const std::string& work_dir, const TaskName& task);

absl::Status NeverRan(const JobId& job, Rank rank);  // The kNotFound of NewestIncarnation.

// Returns the highest incarnation of a rank that has left files here.
// Errors: kInvalidArgument  as TaskFilesOf. kNotFound  there is none.
absl::StatusOr<Incarnation> NewestIncarnation(const std::string& work_dir, const JobId& job,
                                              Rank rank);

// Makes the task's folder and writes the assignment as text, with mode 0600.
// Errors: kUnavailable  the file system fails; names the path and the cause.
absl::Status WriteTaskSpec(const TaskFiles& files, const v1::TaskAssignment& assignment);

// Errors (each names the file): kNotFound  it cannot be read. kInvalidArgument  it does not contain
// a TaskAssignment.
absl::StatusOr<v1::TaskAssignment> ReadTaskSpec(const std::string& path);

// Deletes the files of ended tasks, except for the `keep` tasks whose logs were written last, and
// the folders that are then empty. Always deletes the models that ended tasks have left unsent.
// Returns the number of tasks whose files it deleted.
int DeleteOldTasks(const std::string& work_dir, int keep,
                   const std::function<bool(const TaskName&)>& is_running);

// Returns the paths in a folder; none if it cannot be read.
std::vector<std::filesystem::path> PathsIn(const std::filesystem::path& folder);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DAEMON_TASK_FILES_H_
