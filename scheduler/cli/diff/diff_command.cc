#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/command_line/command.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/diff/compare_runs.h"
#include "scheduler/cli/diff/diff_view.h"
#include "scheduler/cli/diff/run_source.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

constexpr int kExitDifferent = kExitFailed;  // As diff and cmp do.

struct DiffArguments {
  std::string first;
  std::string second;
};

// Prints the error. 1 means that the runs differ, so that no error has this exit code.
int FailToCompare(const absl::Status& status) {
  const int code = Fail(status);
  return code == kExitDifferent ? kExitUsage : code;
}

int Diff(const Settings& settings, const DiffArguments& arguments) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const GetJob get_job = [&scheduler](const std::string& job) { return scheduler.GetJob(job); };
  absl::StatusOr<RecordedRun> first = ReadRun(arguments.first, get_job);
  if (!first.ok()) return FailToCompare(first.status());
  absl::StatusOr<RecordedRun> second = ReadRun(arguments.second, get_job);
  if (!second.ok()) return FailToCompare(second.status());
  const absl::StatusOr<RunComparison> comparison =
      CompareRuns(std::move(first->updates), std::move(second->updates));
  if (!comparison.ok()) return FailToCompare(comparison.status());
  const RunDiffOutput output = DescribeDiff(first->origin, second->origin, *comparison);
  Print(settings.format() == OutputFormat::kJson ? ToJson(output) : DiffText(output));
  return output.equal() ? kExitDone : kExitDifferent;
}

}  // namespace

void AddDiffCommand(Command program, CommandLine& line) {
  auto arguments = std::make_shared<DiffArguments>();
  Command diff = AddCommand(
      program, "diff", "The first update at which two runs differ",
      "  capstan job submit job.textproto --set output.record_updates=true    # twice, then\n"
      "  capstan diff lenet-1 lenet-2\n"
      "  capstan diff lenet-1 ./runs/yesterday    # the output folder of a job, or a copy\n"
      "Under BSP without backups two runs of a job have the same bits, whatever its workers and\n"
      "servers and whoever died. Jobs with output.record_updates write hashes of the parameters\n"
      "and the gradient of each micro-batch to updates.csv in their output folder. A RUN with a\n"
      "'/' is such a folder or file; else it is a job, whose folder this machine must see.\n"
      "What the last update made of the parameters is in model.safetensors alone: see cmp.\n"
      "Exit codes: 0 what both runs have is equal, 1 they differ, 2 they cannot be compared.",
      line, [arguments](const Settings& settings) { return Diff(settings, *arguments); });
  diff.AddOption("RUN", arguments->first, "A job's id, or a folder").Required();
  diff.AddOption("OTHER", arguments->second, "A job's id, or a folder").Required();
}

}  // namespace capstan::cli
