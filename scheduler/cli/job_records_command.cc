#include "scheduler/cli/job_records_command.h"

#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/view/job_view.h"
#include "scheduler/cli/view/text/format.h"
#include "scheduler/cli/view/text/text_table.h"

namespace capstan::cli {
namespace {

int Delete(const Settings& settings, const std::vector<std::string>& jobs) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  int exit_code = kExitDone;
  for (const std::string& job : jobs) {
    const auto deleted = scheduler.DeleteJob(job);
    if (!deleted.ok()) {
      exit_code = Fail(deleted.status());
      continue;
    }
    Print(settings.format() == OutputFormat::kJson
              ? ToJson(*deleted)
              : absl::StrCat(job, " is deleted; what it has written stays in ",
                             PathOn(deleted->output_host(), deleted->output_directory()), "\n"));
  }
  return exit_code;
}

struct LabelArguments {
  std::string job;
  std::vector<std::string> labels;
  std::optional<std::string> note;  // Not given: stays as it is.
};

int Label(const Settings& settings, const LabelArguments& arguments) {
  v1::AnnotateJobRequest request;
  request.set_job_id(arguments.job);
  if (const absl::Status status = AddLabels(arguments.labels, request); !status.ok()) {
    return Fail(status);
  }
  if (arguments.note.has_value()) request.set_note(*arguments.note);
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto annotated = scheduler.Ask(&v1::Scheduler::Stub::AnnotateJob, request);
  if (!annotated.ok()) return Fail(annotated.status());
  if (settings.format() == OutputFormat::kJson) {
    Print(ToJson(*annotated));
    return kExitDone;
  }
  v1::JobStatus job;
  *job.mutable_labels() = annotated->labels();
  std::string text;
  AddField(&text, "job", arguments.job);
  AddField(&text, "labels", LabelsText(job));
  AddField(&text, "note", Printable(annotated->note()));
  Print(text);
  return kExitDone;
}

void AddDelete(Command job, CommandLine& line) {
  auto jobs = std::make_shared<std::vector<std::string>>();
  AddCommand(job, "delete", "Forget jobs that have ended; their files stay",
             "  capstan job delete lenet-1\n"
             "  capstan job delete lenet-1 lenet-2 mlp-3\n"
             "The scheduler forgets the oldest ended jobs by itself: capstan-scheduler\n"
             "--keep-jobs and --keep-jobs-for. A job that has not ended is refused.",
             line, [jobs](const Settings& settings) { return Delete(settings, *jobs); })
      .AddOption("JOB", *jobs, "Ids of jobs, as `capstan job list` shows them")
      .Required();
}

void AddLabel(Command job, CommandLine& line) {
  auto arguments = std::make_shared<LabelArguments>();
  Command command = AddCommand(
      job, "label", "Change the labels and the note of a job, in whatever state",
      "  capstan job label lenet-1 team=ads best=yes\n"
      "  capstan job label lenet-1 best-                 # removes that label\n"
      "  capstan job label lenet-1 --note 'for the paper'\n"
      "  capstan job list --label team=ads -o wide\n"
      "A job file may have them from the start: labels { key: \"team\" value: \"ads\" } note: "
      "\"...\".",
      line, [arguments](const Settings& settings) { return Label(settings, *arguments); });
  command.AddOption("JOB", arguments->job, "Id of the job, as `capstan job list` shows it")
      .Required();
  command.AddOption("LABELS", arguments->labels, "KEY=VALUE sets a label, KEY- removes it");
  command.AddOption("--note", arguments->note, "Free text; empty: none").ValueName("TEXT");
}

}  // namespace

absl::Status AddLabels(const std::vector<std::string>& labels, v1::AnnotateJobRequest& request) {
  for (const std::string& label : labels) {
    const size_t mark = label.find('=');
    if (mark != std::string::npos && mark > 0) {
      (*request.mutable_set_labels())[label.substr(0, mark)] = label.substr(mark + 1);
    } else if (mark == std::string::npos && label.size() > 1 && absl::EndsWith(label, "-")) {
      request.add_remove_labels(label.substr(0, label.size() - 1));
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "LABELS: got \"", label, "\", expected KEY=VALUE, or KEY- to remove a label"));
    }
  }
  return absl::OkStatus();
}

void AddJobRecordsCommands(Command job, CommandLine& line) {
  AddDelete(job, line);
  AddLabel(job, line);
}

}  // namespace capstan::cli
