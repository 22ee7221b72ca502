// ProgramUsers: lets the programs of each job run as a user of their own, on a worker that is root.
//
//   <work dir>/                   root's, others may pass through
//     <job id>/                   root's, the job's group may pass through
//       <rank>-<incarnation>/     the same
//         task.textproto               root's (task_files.h)
//         task.log                     the job's, then root's
//         tls -> tls.1/                copies of the worker's certificate and key, the job's
//         program/                     the job's: its spec, its home, what it writes until its end
//
// So a program reads its own files and these copies, but neither the worker's files nor those of
// another job. When a task ends, its copies and its program folder are deleted; when the last task
// of a job ends, all processes of the job's user are killed, whatever group or session they are in,
// and the user is free for another job. Copies of certificates follow the worker's folder within a
// second.
//
// Daemons of one host, and systemd, may share a range: a daemon takes a user by locking the file
// that is named after its number, in systemd's folder for such locks if there is one. The lock ends
// with the daemon.
// Thread safety: thread-safe. TaskStarts waits while the processes of an ended task of the same job
// are killed.
#ifndef CAPSTAN_WORKER_DAEMON_PROGRAM_USERS_H_
#define CAPSTAN_WORKER_DAEMON_PROGRAM_USERS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/security/certificates/tls_folder.h"
#include "common/storage/files/descriptor.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "worker/daemon/program_uids.h"
#include "worker/daemon/task_files.h"
#include "worker/daemon/task_table.h"

namespace capstan::worker {

class ProgramUsers {
 public:
  struct Options {
    UidRange uids = kDynamicUids;
    std::string work_dir;  // Absolute.
    std::string tls_dir;   // The worker's. Empty: plain text.
  };
  // Where a program runs, and as whom.
  struct Place {
    uid_t user = 0;
    std::string folder;   // The program's own.
    std::string spec;     // A copy of the task's spec that it may read.
    std::string tls_dir;  // Copies of the certificates that it may read; empty: plain text.
  };

  explicit ProgramUsers(Options options);
  ~ProgramUsers();

  // Kills and deletes what programs of this daemon's earlier process have left.
  // Errors: kFailedPrecondition  this process is not root, or others cannot enter the work folder;
  //                              names the folder that they cannot enter.
  //         kUnavailable         a folder cannot be made.
  absl::Status Start();

  // Makes the place of a task whose files are there. REQUIRES: TaskEnded follows if it succeeds.
  // Errors: those of ProgramUids::TaskStarts; those of TlsFolder::Read; kUnavailable  a file cannot
  //         be made; names it.
  absl::StatusOr<Place> TaskStarts(const TaskName& task, const TaskFiles& files,
                                   const v1::TaskAssignment& assignment);
  // The process of the task has ended: cleans up. Logs what cannot be killed or deleted.
  void TaskEnded(const TaskName& task, const TaskFiles& files);

 private:
  // The content of a program's folder of certificates.
  struct Certificates {
    TlsFolder files;
    std::string denied;
    bool Same(const Certificates& other) const;
  };
  struct Running {
    uid_t user = 0;
    std::string folder;    // The task's.
    int64_t tls_copy = 0;  // The number of its newest copy of the certificates.
  };

  std::string LockOf(uid_t user) const;
  // Locks a user. No value: another daemon, or systemd, has the lock.
  absl::StatusOr<std::optional<Descriptor>> TryLock(uid_t user) const;
  absl::StatusOr<bool> TakeIfFree(uid_t user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Place> MakePlace(const TaskFiles& files, const v1::TaskAssignment& assignment,
                                  Running& running);
  void EndOfTask(const TaskName& task, const std::string& folder);
  // Removes the job's files from the task's folder, and closes the folder to the job's user.
  void CleanUp(const std::string& task_folder);
  void TakeOverLeftovers();
  void Run();  // The thread's loop.
  void FollowCertificates();
  void DeleteEnded() const;

  const Options options_;
  const std::string ended_folder_;  // Leftovers of ended tasks are moved here, and deleted.
  std::string locks_folder_;        // Constant after Start.

  absl::Mutex mutex_;
  ProgramUids uids_ ABSL_GUARDED_BY(mutex_);
  std::map<uid_t, Descriptor> locks_ ABSL_GUARDED_BY(mutex_);
  std::map<TaskName, Running> running_ ABSL_GUARDED_BY(mutex_);
  std::set<JobId> ending_ ABSL_GUARDED_BY(mutex_);  // Jobs whose processes are being killed.
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = true;   // There may be something in ended_folder_.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::optional<Certificates> newest_;  // Used by the thread alone.

  std::thread thread_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DAEMON_PROGRAM_USERS_H_
