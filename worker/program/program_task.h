// ProgramTask: runs a worker task inside the process of a user's program.
//
// A thread reports to the scheduler and exchanges parameters and gradients with the servers, as in
// `capstan-worker --task`; the program computes.
// Thread safety: as ProgramComputation; the destructor and Join are for the program's thread.
#ifndef CAPSTAN_WORKER_PROGRAM_PROGRAM_TASK_H_
#define CAPSTAN_WORKER_PROGRAM_PROGRAM_TASK_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/net/grpc/credentials.h"
#include "proto/scheduler.pb.h"
#include "worker/program/program_computation.h"
#include "worker/task/run_task.h"

namespace capstan::worker {

class ProgramTask {
 public:
  struct Options {
    std::string spec;       // The file with the TaskAssignment (worker/daemon/task_files.h).
    std::string scheduler;  // host:port
    std::string tls_dir;    // Empty: plain text.
    std::string log_format = "text";
  };
  // Errors: those of ReadTaskSpec and OpenCredentials; kInvalidArgument  the job has no program.
  static absl::StatusOr<std::unique_ptr<ProgramTask>> Start(const Options& options);
  ~ProgramTask() { Leave(); }
  ProgramTask(const ProgramTask&) = delete;
  ProgramTask& operator=(const ProgramTask&) = delete;

  const v1::TaskAssignment& assignment() const { return assignment_; }
  ProgramComputation& computation() { return *computation_; }
  const std::string& scheduler() const { return scheduler_; }            // host:port
  const Credentials* credentials() const { return credentials_.get(); }  // Null: plain text.
  std::string capability();  // The task's newest (common/security/capability.h).
  // Waits for the task's end; a task that is not done fails, unless the program has finished its
  // run at its own pace: then the others' runs are awaited. Returns its exit code
  // (worker/task/run_task.h). Idempotent.
  int Leave();

 private:
  ProgramTask(const v1::TaskAssignment& assignment, const Options& options,
              std::unique_ptr<Credentials> credentials);
  void Run(const Options& options);

  const v1::TaskAssignment assignment_;
  const std::string scheduler_;
  const std::unique_ptr<Credentials> credentials_;  // Null: plain text.
  const std::shared_ptr<ProgramComputation> computation_;
  RunningTask running_;
  int exit_code_ = 0;  // Written by thread_, read once it was joined.
  std::thread thread_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PROGRAM_PROGRAM_TASK_H_
