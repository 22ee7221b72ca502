#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "common/storage/posix_disk.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/job/submit.h"
#include "scheduler/cli/operations/checkpoint_files.h"
#include "scheduler/cli/operations/spec_changes.h"
#include "scheduler/cli/view/recover_view.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

struct GoOnArguments {
  std::string from;  // A folder, or a job's id.
  SpecChanges changes;
  bool no_wait = false;
  bool replace_model = false;
};

// Submits the job, prints its id and follows it. `of` is "checkpoint 3 of lenet-1", or empty if the
// checkpoint is not known yet. Returns the exit code.
int SubmitAndFollow(const Settings& settings, const GoOnArguments& arguments,
                    v1::SubmitJobRequest request, const std::string& of) {
  const Interrupts interrupts;
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  request.set_replace_model(arguments.replace_model);
  const auto submitted = SubmitPatiently(scheduler, std::move(request), AfterSignal::kGoesOn);
  if (!submitted.ok()) return FailSubmission(submitted.status());
  const bool json = settings.format() == OutputFormat::kJson;
  if (json && arguments.no_wait) {
    Print(ToJson(*submitted));
    return kExitDone;
  }
  if (!json) {
    const v1::RestoredPoint& from = submitted->restored();
    Print(absl::StrCat("submitted ", submitted->job_id(), ", which goes on from ",
                       of.empty() ? from.folder() : of, " (epoch ", from.epoch(), ", iteration ",
                       FormatCount(from.iteration()), ")\n"));
  }
  if (arguments.no_wait) return kExitDone;
  return FollowToEnd(scheduler, submitted->job_id(), settings.format(), AfterSignal::kGoesOn);
}

SpecChanges WithAbsolutePaths(SpecChanges changes) {
  if (!changes.output.empty()) changes.output = std::filesystem::absolute(changes.output).string();
  return changes;
}

int Restore(const Settings& settings, const GoOnArguments& arguments) {
  PosixDisk disk;
  const auto source = FindRestoreSource(disk, arguments.from);
  if (!source.ok()) return Fail(source.status());
  for (const std::string& reason : source->passed_over) {
    Note(absl::StrCat("passed over ", reason));
  }
  const auto spec = RestoredJob(source->manifest, WithAbsolutePaths(arguments.changes));
  if (!spec.ok()) return FailJobFile(spec.status());
  v1::SubmitJobRequest request;
  *request.mutable_spec() = *spec;
  request.set_restore_folder(source->path);
  return SubmitAndFollow(settings, arguments, std::move(request),
                         absl::StrCat("checkpoint ", source->manifest.checkpoint_id(), " of ",
                                      source->manifest.job_id()));
}

int Resume(const Settings& settings, const GoOnArguments& arguments) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto job = scheduler.GetJob(arguments.from);
  if (!job.ok()) return Fail(job.status());
  const auto spec = ResumedJob(*job, WithAbsolutePaths(arguments.changes));
  if (!spec.ok()) return FailJobFile(spec.status());
  v1::SubmitJobRequest request;
  *request.mutable_spec() = *spec;
  request.set_resume_job(arguments.from);
  return SubmitAndFollow(settings, arguments, std::move(request), "");
}

int ShowRecoverable(const Settings& settings) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto list = scheduler.Ask(&v1::Scheduler::Stub::ListRecoverable, {});
  if (!list.ok()) return Fail(list.status());
  Print(settings.format() == OutputFormat::kJson ? ToJson(*list) : RecoverableTable(*list));
  return kExitDone;
}

int RecoverFromLogs(const Settings& settings, const std::string& job, bool no_wait) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto recovered = scheduler.RecoverJob(job);
  if (!recovered.ok()) return Fail(recovered.status());
  const bool json = settings.format() == OutputFormat::kJson;
  if (json && no_wait) {
    Print(ToJson(*recovered));
    return kExitDone;
  }
  if (!json) {
    Print(absl::StrCat("took up ", recovered->job_id(), " of cluster ", recovered->cluster_id(),
                       ", as its scheduler recorded it at ", TimeText(recovered->record_unix_ms()),
                       "; it goes on from its logs\n"));
  }
  if (no_wait) return kExitDone;
  const Interrupts interrupts;
  return FollowToEnd(scheduler, recovered->job_id(), settings.format(), AfterSignal::kGoesOn);
}

int Recover(const Settings& settings, const GoOnArguments& arguments, const std::string& job) {
  if (!arguments.from.empty()) return Restore(settings, arguments);
  const SpecChanges& changes = arguments.changes;
  if (!changes.set.empty() || changes.servers || changes.workers || arguments.replace_model ||
      !changes.output.empty()) {
    return Fail(absl::InvalidArgumentError(
        "--set, --servers, --workers, -O and --replace go with --from: from its logs a job goes "
        "on as it was"));
  }
  return job.empty() ? ShowRecoverable(settings)
                     : RecoverFromLogs(settings, job, arguments.no_wait);
}

// Adds all options except the one that names the checkpoint.
void AddOptions(Command command, GoOnArguments& arguments) {
  command
      .AddOption("--set", arguments.changes.set,
                 "Change a field of the job: FIELD=VALUE, as of capstan job submit; may be "
                 "repeated. Model, training data, mode, optimizer kind, batch size, seed and "
                 "slots stay, as the checkpoint rests on them")
      .ValueName("FIELD=VALUE")
      .OneValueEach();
  command.AddOption("--servers", arguments.changes.servers, "Servers; 0: all that are alive")
      .ValueName("N");
  command.AddOption("--workers", arguments.changes.workers, "Worker tasks").ValueName("N");
  command
      .AddOption("-O,--directory", arguments.changes.output,
                 "Folder for the new job's files. Default: the output.directory of the first "
                 "job's file, which that job must have left; without one, the new job's own")
      .ValueName("FOLDER");
  command.AddFlag("--replace", arguments.replace_model,
                  "Where that folder holds a model already: replace it at the new job's end. "
                  "Without this such a job is refused");
  command.AddFlag("--no-wait", arguments.no_wait, "Print the job's id and return");
}

}  // namespace

void AddRestoreCommand(Command checkpoint, CommandLine& line) {
  auto arguments = std::make_shared<GoOnArguments>();
  Command restore = AddCommand(
      checkpoint, "restore", "Submit a new job that goes on from a checkpoint, and follow it",
      "  capstan checkpoint restore out/checkpoints            # the newest whole one\n"
      "  capstan checkpoint restore out/checkpoints/checkpoint-7 --servers 3 --workers 4\n"
      "  capstan checkpoint restore out/checkpoints -O branch    # the saved job may still run\n"
      "  capstan checkpoint restore out/checkpoints --set training.epochs=20 \\\n"
      "      --set optimizer.learning_rate=0.001\n"
      "Every block is verified first. The cluster must see the folder by the same path.\n"
      "Exit code: as `capstan job submit`; 1 if the checkpoint is damaged.",
      line, [arguments](const Settings& settings) { return Restore(settings, *arguments); });
  restore.AddOption("FOLDER", arguments->from, "A checkpoint, or a folder of checkpoints")
      .Required();
  AddOptions(restore, *arguments);
}

void AddResumeCommand(Command job, CommandLine& line) {
  auto arguments = std::make_shared<GoOnArguments>();
  Command resume = AddCommand(
      job, "resume", "Go on with a job that has ended, from its newest whole checkpoint",
      "  capstan job stop lenet-1 --save && capstan job resume lenet-1\n"
      "  capstan job resume lenet-1 --set training.epochs=20      # it may have succeeded, too\n"
      "  capstan job resume lenet-1 --workers 4 --no-wait\n"
      "It is a new job, with an id of its own and the specification of the first one. The\n"
      "scheduler finds the checkpoint: this machine need not see it.\n"
      "Exit code: as `capstan job submit`; 1 if the job has not ended, 2 if it has no checkpoint.",
      line, [arguments](const Settings& settings) { return Resume(settings, *arguments); });
  resume.AddOption("JOB", arguments->from, "Id of the job, as `capstan job list` shows it")
      .Required();
  AddOptions(resume, *arguments);
}

void AddRecoverCommand(Command job, CommandLine& line) {
  auto arguments = std::make_shared<GoOnArguments>();
  auto job_id = std::make_shared<std::string>();
  Command recover = AddCommand(
      job, "recover", "Take up a job whose scheduler has lost its store, and follow it",
      "  capstan job recover                             # what can be recovered, and what lacks\n"
      "  capstan job recover lenet-1                     # from the logs on its servers\n"
      "  capstan job recover --from=out/checkpoints      # from its newest whole checkpoint\n"
      "From logs (durability: LOG): start the servers again under their names (--name) and with\n"
      "their data folders (--data-dir), and a worker. The job keeps its id and loses nothing that\n"
      "was acknowledged; BSP ends with the same bits, in SSP and ASP batches of the last seconds\n"
      "may be trained once more (capstan job describe says how many at most). Servers keep logs\n"
      "that no job claims for --log-grace, 24 hours.\n"
      "From a checkpoint: it gets a new id, and trains again what it did since then.\n"
      "Exit code: as `capstan job submit`; 1 if it is refused, with what is missing.",
      line, [arguments, job_id](const Settings& settings) {
        return Recover(settings, *arguments, *job_id);
      });
  Option id = recover.AddOption(
      "JOB", *job_id, "Id of the job, or its unique id, as `capstan job recover` shows it");
  recover
      .AddOption("--from,--checkpoint", arguments->from,
                 "The job's folder of checkpoints, or one of them")
      .ValueName("FOLDER")
      .Excludes(id);
  AddOptions(recover, *arguments);
}

}  // namespace capstan::cli
