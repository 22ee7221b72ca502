#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/job/follow.h"
#include "scheduler/cli/operations/checkpoint_save.h"
#include "scheduler/cli/view/job_view.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

struct StopArguments {
  std::string job;
  bool save = false;
};

int Stop(const Settings& settings, const std::string& job_id) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto stopped = scheduler.StopJob(job_id);
  if (!stopped.ok()) return Fail(stopped.status());
  Print(settings.format() == OutputFormat::kJson
            ? ToJson(*stopped)
            : absl::StrCat(job_id, " ", StateName(stopped->state()), "\n"));
  return kExitDone;
}

// Reports why the job is not saved, and its present state. Returns the exit code.
int FailToSave(SchedulerClient& scheduler, const std::string& job_id, const absl::Status& why) {
  if (absl::IsCancelled(why)) {
    Note(absl::StrCat(job_id, " stops once it is saved. Follow it: capstan job watch ", job_id));
    return kExitSignal + Interrupts::Signal();
  }
  const auto job = scheduler.GetJob(job_id);
  if (!job.ok()) return Fail(why);
  const std::string goes_on = HasEnded(job->state()) ? "" : ", and goes on";
  return Fail(absl::Status(
      why.code(), absl::StrCat(why.message(), "; ", job_id, " is ", StateName(job->state()),
                               goes_on, ": ", job->detail())));
}

int SaveAndStop(const Settings& settings, const std::string& job_id) {
  const Interrupts interrupts;
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto asked = scheduler.StopJob(job_id, SchedulerClient::Save::kYes);
  if (!asked.ok()) return Fail(asked.status());
  const auto saved = AwaitCheckpoint(scheduler, job_id, asked->asked_id());
  if (!saved.ok()) return FailToSave(scheduler, job_id, saved.status());
  const bool json = settings.format() == OutputFormat::kJson;
  const auto job = FollowJob(scheduler, job_id, {.show = json ? Show::kNothing : Show::kProgress});
  if (!job.ok()) return FailToSave(scheduler, job_id, job.status());
  Print(json ? ToJson(*job) : EndSummary(*job));
  return job->state() == v1::FAILED ? kExitFailed : kExitDone;
}

}  // namespace

void AddStopCommand(Command job, CommandLine& line) {
  auto arguments = std::make_shared<StopArguments>();
  Command stop = AddCommand(
      job, "stop", "Stop a job; what it has exported stays",
      "  capstan job stop lenet-1\n"
      "  capstan job stop lenet-1 --save     # to go on later: capstan job resume lenet-1\n"
      "With --save it takes a checkpoint first, and writes its model, as at its end. If it cannot\n"
      "be saved it goes on, and the reason is told.\n"
      "Exit code: 0 it is stopped (with --save: and saved), 1 it cannot be saved.",
      line, [arguments](const Settings& settings) {
        return arguments->save ? SaveAndStop(settings, arguments->job)
                               : Stop(settings, arguments->job);
      });
  stop.AddOption("JOB", arguments->job, "Id of the job, as `capstan job list` shows it").Required();
  stop.AddFlag("--save", arguments->save,
               "First take a checkpoint and write the model; waits until both are done");
}

}  // namespace capstan::cli
