#include "worker/program/program_task.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/net/node/daemon.h"
#include "common/status/status_macros.h"
#include "worker/daemon/task_files.h"

namespace capstan::worker {

absl::StatusOr<std::unique_ptr<ProgramTask>> ProgramTask::Start(const Options& options) {
  CAPSTAN_ASSIGN_OR_RETURN(const v1::TaskAssignment assignment, ReadTaskSpec(options.spec));
  if (!assignment.spec().has_program()) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", assignment.job_id(), " trains a model, expected a program"));
  }
  DaemonFlags flags;
  flags.tls_dir = options.tls_dir;
  flags.log_format = options.log_format;
  InitDaemonLogging(flags, absl::StrCat("task ", assignment.job_id(), "/", assignment.rank()));
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Credentials> credentials,
                           OpenCredentials(flags, PeerRole::kWorker, /*listens=*/{}));
  return std::unique_ptr<ProgramTask>(new ProgramTask(assignment, options, std::move(credentials)));
}

ProgramTask::ProgramTask(const v1::TaskAssignment& assignment, const Options& options,
                         std::unique_ptr<Credentials> credentials)
    : assignment_(assignment),
      scheduler_(options.scheduler),
      credentials_(std::move(credentials)),
      computation_(std::make_shared<ProgramComputation>(assignment.spec())) {
  thread_ = std::thread([this, options] { Run(options); });
}

void ProgramTask::Run(const Options& options) {
  const std::string folder = std::filesystem::path(options.spec).parent_path().string();
  exit_code_ = RunTask(
      assignment_, options.scheduler, credentials_.get(), folder,
      [this](const v1::JobSpec&, const std::vector<int>&, const Progress&, StepObserver*) {
        return computation_;
      },
      &running_);
  computation_->End();
}

std::string ProgramTask::capability() {
  const std::string newest = running_.capability();
  return newest.empty() ? assignment_.capability() : newest;
}

int ProgramTask::Leave() {
  if (thread_.joinable()) {
    computation_->Leave();
    running_.GiveUp(computation_->idle_failure());
    thread_.join();
  }
  return exit_code_;
}

}  // namespace capstan::worker
