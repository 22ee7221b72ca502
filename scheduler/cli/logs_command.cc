#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/client/patience.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/job/job_logs.h"
#include "scheduler/cli/view/job_view.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(300);

struct LogArguments {
  std::string job;
  int rank = JobLogs::kAllRanks;
  bool follow = false;
};

// Prints the results of epochs that have ended since the last call.
void PrintEpochs(const v1::JobStatus& job, int* told) {
  for (; *told < job.results_size(); ++*told) {
    Print(absl::StrCat("[job] ", EpochLine(job.results(*told), job), "\n"));
  }
}

int NoTask(const v1::JobStatus& job, int rank) {
  const std::string which =
      rank == JobLogs::kAllRanks ? "no task" : absl::StrCat("no task of rank ", rank);
  return Fail(absl::NotFoundError(absl::StrCat(job.job_id(), " has ", which, ": it is ",
                                               StateName(job.state()), ". ", job.detail())));
}

int Logs(const Settings& settings, const LogArguments& arguments) {
  const Interrupts interrupts;
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  JobLogs logs(scheduler, arguments.job,
               {.rank = arguments.rank,
                .print = [](const std::string& line) { Print(absl::StrCat(line, "\n")); },
                .say = [](const std::string& line) { Note(line); }});
  const bool all = arguments.rank == JobLogs::kAllRanks;
  int epochs_told = 0;
  Patience patience(scheduler.address(), {.meanwhile = "the job goes on"});
  while (Interrupts::Signal() == 0) {
    const auto job = scheduler.GetJob(arguments.job);
    if (arguments.follow && patience.AsksAgain(job.status())) continue;
    if (!job.ok()) return Fail(job.status());
    const bool found = logs.Read(*job);
    const bool last = !arguments.follow || HasEnded(job->state());
    if (last && !found) return NoTask(*job, arguments.rank);
    if (last && arguments.follow) logs.ReadToEnd(*job);
    if (last) logs.Finish();
    if (all) PrintEpochs(*job, &epochs_told);
    if (last) {
      return logs.failed() ? kExitFailed : kExitDone;
    }
    Interrupts::Sleep(kPollInterval);
  }
  return kExitSignal + Interrupts::Signal();
}

}  // namespace

void AddLogsCommand(Command job, CommandLine& line) {
  auto arguments = std::make_shared<LogArguments>();
  Command logs = AddCommand(
      job, "logs", "What a job's tasks wrote, and the figures of each epoch",
      "  capstan job logs lenet-1\n"
      "  capstan job logs lenet-1 --rank 0 --follow\n"
      "Lines of [job] have loss and accuracy of each epoch; --rank leaves them out. Where a task's "
      "worker\n"
      "is gone, the last MiB of its log, which the scheduler keeps, is shown. A terminal gets "
      "control\n"
      "characters as \\u001b and the like; a file or pipe gets the bytes that the task wrote.",
      line, [arguments](const Settings& settings) { return Logs(settings, *arguments); });
  logs.AddOption("JOB", arguments->job, "Id of the job").Required();
  logs.AddOption("--rank", arguments->rank, "Only this task, from 0")
      .NotNegative()
      .ValueName("RANK");
  logs.AddFlag("-f,--follow", arguments->follow, "Go on until the job ends");
}

}  // namespace capstan::cli
