#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/command_line/command.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/job/job_selection.h"
#include "scheduler/cli/job/submit.h"
#include "scheduler/cli/job/upload.h"
#include "scheduler/cli/job_records_command.h"
#include "scheduler/cli/view/job_view.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

// The parser fills in these arguments before the command runs.
struct SubmitArguments {
  JobSource source;
  std::vector<std::string> labels;
  std::string note;
  bool no_wait = false;
  bool replace_model = false;
  bool skip_data_check = false;
  bool upload_weights = false;
  bool logs = false;
  bool stop_on_interrupt = false;
};

int Submit(const Settings& settings, const SubmitArguments& arguments) {
  const auto spec = LoadCheckedJob(arguments.source,
                                   arguments.skip_data_check ? DataCheck::kSkip : DataCheck::kDo);
  if (!spec.ok()) return FailJobFile(spec.status());
  v1::SubmitJobRequest request;
  *request.mutable_spec() = *spec;
  v1::AnnotateJobRequest labels;
  if (const absl::Status status = AddLabels(arguments.labels, labels); !status.ok()) {
    return Fail(status);
  }
  const Interrupts interrupts;
  const AfterSignal after_signal =
      arguments.stop_on_interrupt ? AfterSignal::kStopJob : AfterSignal::kGoesOn;
  for (const auto& [key, value] : labels.set_labels()) {
    (*request.mutable_spec()->mutable_labels())[key] = value;
  }
  for (const std::string& key : labels.remove_labels()) {
    request.mutable_spec()->mutable_labels()->erase(key);
  }
  if (!arguments.note.empty()) request.mutable_spec()->set_note(arguments.note);
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  if (arguments.upload_weights) {
    const absl::Status sent = UploadWeights(scheduler, request.mutable_spec());
    if (!sent.ok()) return FailSubmission(sent);
  }
  request.set_replace_model(arguments.replace_model);
  const auto submitted = SubmitPatiently(scheduler, std::move(request), after_signal);
  if (!submitted.ok()) return FailSubmission(submitted.status());
  const std::string& job = submitted->job_id();
  const bool json = settings.format() == OutputFormat::kJson;
  const bool leaves = arguments.no_wait && Interrupts::Signal() == 0;
  if (json && leaves) {
    Print(ToJson(*submitted));
    return kExitDone;
  }
  if (!json) {
    Print(absl::StrCat("submitted ", job, "\n  capstan job describe ", job,
                       "   state, tasks, results\n  capstan job logs ", job,
                       "       what its tasks wrote\n  capstan job stop ", job,
                       "       stop it\n"));
  }
  if (leaves) return kExitDone;
  return FollowToEnd(scheduler, job, settings.format(), after_signal,
                     arguments.logs ? Show::kLogs : Show::kProgress);
}

int List(const Settings& settings, const JobSelection& selection) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  auto jobs = scheduler.Ask(&v1::Scheduler::Stub::ListJobs, {});
  if (!jobs.ok()) return Fail(jobs.status());
  if (const absl::Status status = SelectJobs(selection, *jobs); !status.ok()) return Fail(status);
  Print(settings.format() == OutputFormat::kJson
            ? ToJson(*jobs)
            : JobTable(*jobs, absl::Now(), settings.is_wide() ? Columns::kWide : Columns::kNarrow));
  return kExitDone;
}

int ShowStatus(const Settings& settings, const std::string& job_id) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto job = scheduler.GetJob(job_id);
  if (!job.ok()) return Fail(job.status());
  v1::ListJobsResponse one;
  *one.add_jobs() = *job;
  Print(settings.format() == OutputFormat::kJson
            ? ToJson(*job)
            : JobTable(one, absl::Now(), settings.is_wide() ? Columns::kWide : Columns::kNarrow));
  return kExitDone;
}

int Describe(const Settings& settings, const std::string& job_id) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto job = scheduler.GetJob(job_id);
  if (!job.ok()) return Fail(job.status());
  Print(settings.format() == OutputFormat::kJson ? ToJson(*job) : DescribeJob(*job, absl::Now()));
  return kExitDone;
}

struct WatchArguments {
  std::string job;
  bool changes = false;
};

int Watch(const Settings& settings, const WatchArguments& arguments) {
  if (arguments.changes && settings.format() != OutputFormat::kJson) {
    return Fail(absl::InvalidArgumentError("--changes needs -o json: each change is such a line"));
  }
  const Interrupts interrupts;
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  return FollowToEnd(scheduler, arguments.job, settings.format(), AfterSignal::kGoesOn,
                     arguments.changes ? Show::kChanges : Show::kProgress);
}

void AddWatch(Command job, CommandLine& line) {
  auto arguments = std::make_shared<WatchArguments>();
  Command command = AddCommand(
      job, "watch",
      "Follow a job to its end, with what goes wrong meanwhile, and exit with its result",
      "  capstan job watch lenet-1\n  capstan job watch lenet-1 -o json   # only the end\n"
      "  capstan job watch lenet-1 -o json --changes",
      line, [arguments](const Settings& settings) { return Watch(settings, *arguments); });
  command.AddOption("JOB", arguments->job, "Id of the job, as `capstan job list` shows it")
      .Required();
  command.AddFlag("--changes", arguments->changes,
                  "With -o json: the job's status, as a line, each time that it has changed");
}

struct ExportArguments {
  std::string job;
  std::string folder;
  bool no_wait = false;
  bool replace_model = false;
};

int Export(const Settings& settings, const ExportArguments& arguments) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  v1::ExportJobRequest request;
  request.set_job_id(arguments.job);
  request.set_folder(arguments.folder);
  request.set_replace_model(arguments.replace_model);
  const auto begun = scheduler.Ask(&v1::Scheduler::Stub::ExportJob, request);
  if (!begun.ok()) return Fail(begun.status());
  const bool json = settings.format() == OutputFormat::kJson;
  if (!json) {
    Print(absl::StrCat(arguments.job, " writes its model to ",
                       PathOn(begun->host(), begun->folder()), "\n"));
  } else if (arguments.no_wait) {
    Print(ToJson(*begun));
  }
  if (arguments.no_wait) return kExitDone;
  const Interrupts interrupts;
  return FollowToEnd(scheduler, arguments.job, settings.format(), AfterSignal::kGoesOn);
}

void AddExport(Command job, CommandLine& line) {
  auto arguments = std::make_shared<ExportArguments>();
  Command command = AddCommand(
      job, "export", "Write the model of a job whose own folder could not take it",
      "  capstan job export lenet-1 --to=/mnt/models/lenet\n"
      "  capstan job export lenet-1                  # the same folder again\n"
      "Where a model cannot be written at a job's end (a full disk, no permission), the servers "
      "keep\n"
      "it for an hour, and `capstan job describe` says so. Other jobs: capstan table export.\n"
      "Exit code: 0 the job succeeded, 1 the model cannot be written there either.",
      line, [arguments](const Settings& settings) { return Export(settings, *arguments); });
  command.AddOption("JOB", arguments->job, "Id of the job, as `capstan job list` shows it")
      .Required();
  command
      .AddOption("--to", arguments->folder,
                 "Absolute path on the scheduler's host; by default where the model was to be")
      .ValueName("FOLDER");
  command.AddFlag("--replace", arguments->replace_model,
                  "Where the folder holds a model already: replace it");
  command.AddFlag("--no-wait", arguments->no_wait, "Return once the export has begun");
}

void AddSubmit(Command job, CommandLine& line) {
  auto arguments = std::make_shared<SubmitArguments>();
  Command submit = AddCommand(
      job, "submit", "Check a job file, submit it, and follow the job to its end",
      "  capstan job submit job.textproto\n"
      "  capstan job submit job.textproto --set training.epochs=3 --set resources.workers=4\n"
      "  capstan job submit job.json --no-wait -o json\n"
      "Exit code: 0 the job succeeded, 1 it failed or was stopped, 2 bad job file,\n"
      "75 the scheduler cannot be reached, 130 interrupted (the job goes on, or see\n"
      "--stop-on-interrupt).",
      line, [arguments](const Settings& settings) { return Submit(settings, *arguments); });
  AddJobSource(submit, &arguments->source);
  submit
      .AddOption("--label", arguments->labels,
                 "KEY=VALUE, beside those of the job file (KEY-: without that one); may be "
                 "repeated")
      .ValueName("LABEL")
      .OneValueEach();
  submit.AddOption("--note", arguments->note, "Free text that the job has for people")
      .ValueName("TEXT");
  submit.AddFlag("--no-wait", arguments->no_wait, "Print the job's id and return");
  submit.AddFlag("--upload-weights", arguments->upload_weights,
                 "Send the file of training.initial_weights, which the scheduler's host need not "
                 "have");
  submit.AddFlag("--logs", arguments->logs,
                 "While following, also print what the tasks write: \"[rank N] ...\"");
  submit.AddFlag("--stop-on-interrupt", arguments->stop_on_interrupt,
                 "Ctrl-C and SIGTERM stop the job; without this it goes on");
  submit.AddFlag("--replace", arguments->replace_model,
                 "Where the output folder holds a model already: replace it at the job's end. "
                 "Without this such a job is refused");
  submit.AddFlag("--skip-data-check", arguments->skip_data_check,
                 "Do not read the data files here: only the cluster sees them");
}

void AddList(Command job, CommandLine& line) {
  auto selection = std::make_shared<JobSelection>();
  Command list = AddCommand(
      job, "list", "The jobs, in the order of submission unless told otherwise",
      "  capstan job list\n"
      "  capstan job list --state running --state pending\n"
      "  capstan job list --label team=ads -o wide\n"
      "  capstan job list --name lenet --sort ended --last 10 -o json\n"
      "-o wide adds when each was submitted and ended, its output folder, labels and note.",
      line, [selection](const Settings& settings) { return List(settings, *selection); });
  list.AddOption("--state", selection->states,
                 "Only jobs in this state: pending, running, succeeded, stopped or failed; may "
                 "be repeated")
      .ValueName("STATE")
      .OneValueEach();
  list.AddOption("--name", selection->name, "Only jobs whose id contains this").ValueName("TEXT");
  list.AddOption("--label", selection->labels,
                 "Only jobs with this label (KEY, or KEY=VALUE); may be repeated")
      .ValueName("LABEL")
      .OneValueEach();
  list.AddOption("--sort", selection->sort,
                 "submitted, ended (those that go on come last), name or state")
      .ValueName("ORDER")
      .ShowDefault();
  list.AddOption("--last", selection->last, "Only so many, the last of that order; 0: all")
      .ValueName("N")
      .NotNegative();
}

using JobFunction = int (*)(const Settings& settings, const std::string& job_id);

void AddJobCommand(Command job, const std::string& name, const std::string& description,
                   const std::string& examples, CommandLine& line, JobFunction function) {
  auto job_id = std::make_shared<std::string>();
  AddCommand(job, name, description, examples, line,
             [job_id, function](const Settings& settings) { return function(settings, *job_id); })
      .AddOption("JOB", *job_id, "Id of the job, as `capstan job list` shows it")
      .Required();
}

}  // namespace

void AddJobCommands(Command job, CommandLine& line) {
  AddSubmit(job, line);
  AddList(job, line);
  AddJobCommand(
      job, "status", "One line about a job, with the AUC or RMSE of its newest test if it has one",
      "  capstan job status lenet-1\n  capstan job status lenet-1 -o json", line, ShowStatus);
  AddJobCommand(
      job, "describe",
      "Everything about a job: state and reason, tasks and whom they wait for, results, events",
      "  capstan job describe lenet-1", line, Describe);
  AddWatch(job, line);
  AddExport(job, line);
  AddJobRecordsCommands(job, line);
}

}  // namespace capstan::cli
