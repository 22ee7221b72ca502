#include "scheduler/cli/operations/checkpoint_command.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/storage/posix_disk.h"
#include "scheduler/cli/client.h"
#include "scheduler/cli/console.h"
#include "scheduler/cli/exit_code.h"
#include "scheduler/cli/interrupts.h"
#include "scheduler/cli/operations/checkpoint_files.h"
#include "scheduler/cli/operations/checkpoint_save.h"
#include "scheduler/cli/submit.h"
#include "scheduler/cli/view/checkpoint_view.h"
#include "scheduler/cli/view/format.h"

namespace capstan::cli {
namespace {

int Show(const Settings& settings, const std::string& folder, Depth depth) {
  PosixDisk disk;
  const auto list = DescribeCheckpoints(disk, folder, depth);
  if (!list.ok()) return Fail(list.status());
  Print(settings.format() == OutputFormat::kJson ? ToJson(*list) : CheckpointTable(*list));
  if (depth == Depth::kManifests) return kExitDone;
  bool verified = false;
  for (const CheckpointOutput& checkpoint : list->checkpoints()) {
    if (checkpoint.state() == "damaged") return kExitFailed;
    verified |= checkpoint.state() == "verified";
  }
  if (verified) return kExitDone;
  return Fail(absl::FailedPreconditionError(absl::StrCat("no complete checkpoint in ", folder)));
}

int Save(const Settings& settings, const std::string& job_id) {
  SchedulerClient scheduler(settings.scheduler);
  const auto saved = SaveCheckpoint(scheduler, job_id);
  if (!saved.ok()) return Fail(saved.status());
  Print(settings.format() == OutputFormat::kJson
            ? ToJson(*saved)
            : absl::StrCat("saved checkpoint ", saved->checkpoint_id(), " of ", job_id,
                           saved->host().empty() ? "" : " on " + saved->host(), "\n",
                           saved->folder(), "\n"));
  return kExitDone;
}

struct RestoreArguments {
  std::string folder;
  std::optional<int> servers;
  std::optional<int> workers;
  std::string output;  // Empty: where the saved job's are, or the default.
  bool no_wait = false;
  bool replace_model = false;
};

int Restore(const Settings& settings, const RestoreArguments& arguments) {
  PosixDisk disk;
  const auto source = FindRestoreSource(disk, arguments.folder);
  if (!source.ok()) return Fail(source.status());
  for (const std::string& reason : source->passed_over) {
    Note(absl::StrCat("passed over ", reason));
  }
  const std::string output =
      arguments.output.empty() ? "" : std::filesystem::absolute(arguments.output).string();
  const auto spec = RestoredJob(source->manifest, arguments.servers, arguments.workers, output);
  if (!spec.ok()) return FailJobFile(spec.status());
  SchedulerClient scheduler(settings.scheduler);
  v1::SubmitJobRequest request;
  *request.mutable_spec() = *spec;
  request.set_restore_folder(source->path);
  request.set_replace_model(arguments.replace_model);
  const auto submitted = SubmitPatiently(scheduler, std::move(request));
  if (!submitted.ok()) return Fail(submitted.status());
  const bool json = settings.format() == OutputFormat::kJson;
  if (json && arguments.no_wait) {
    Print(ToJson(*submitted));
    return kExitDone;
  }
  if (!json) {
    Print(absl::StrCat("submitted ", submitted->job_id(), ", which goes on from checkpoint ",
                       source->manifest.checkpoint_id(), " of ", source->manifest.job_id(),
                       " (epoch ", source->manifest.epoch() + 1, ", iteration ",
                       FormatCount(source->manifest.iteration()), ")\n"));
  }
  if (arguments.no_wait) return kExitDone;
  const Interrupts interrupts;
  return FollowToEnd(scheduler, submitted->job_id(), settings.format(), AfterSignal::kGoesOn);
}

// All but the checkpoint.
void AddRestoreOptions(CLI::App& command, RestoreArguments& arguments) {
  command.add_option("--servers", arguments.servers, "Servers; 0: all that are alive")
      ->type_name("N");
  command.add_option("--workers", arguments.workers, "Worker tasks")->type_name("N");
  command
      .add_option("-O,--directory", arguments.output,
                  "Folder for the new job's files. Default: the output.directory of the saved "
                  "job's file, which that job must have left; without one, the new job's own")
      ->type_name("FOLDER");
  command.add_flag("--replace", arguments.replace_model,
                   "Where that folder holds a model already: replace it at the new job's end. "
                   "Without this such a job is refused");
  command.add_flag("--no-wait", arguments.no_wait, "Print the job's id and return");
}

void AddRestore(CLI::App& checkpoint, CommandLine& line) {
  auto arguments = std::make_shared<RestoreArguments>();
  CLI::App* restore = AddCommand(
      checkpoint, "restore", "Submit a new job that goes on from a checkpoint, and follow it",
      "  capstan checkpoint restore out/checkpoints            # the newest whole one\n"
      "  capstan checkpoint restore out/checkpoints/checkpoint-7 --servers 3 --workers 4\n"
      "  capstan checkpoint restore out/checkpoints -O branch    # the saved job may still run\n"
      "Every block is verified first. The cluster must see the folder by the same path.\n"
      "Exit code: as `capstan job submit`; 1 if the checkpoint is damaged.",
      line, [arguments](const Settings& settings) { return Restore(settings, *arguments); });
  restore->add_option("FOLDER", arguments->folder, "A checkpoint, or a folder of checkpoints")
      ->required();
  AddRestoreOptions(*restore, *arguments);
}

void AddShow(CLI::App& checkpoint, const std::string& name, const std::string& description,
             const std::string& examples, CommandLine& line, Depth depth) {
  auto folder = std::make_shared<std::string>();
  AddCommand(
      checkpoint, name, description, examples, line,
      [folder, depth](const Settings& settings) { return Show(settings, *folder, depth); },
      Concerns::kThisMachine)
      ->add_option("FOLDER", *folder, "A folder of checkpoints, or a checkpoint")
      ->required();
}

}  // namespace

void AddCheckpointCommands(CLI::App& checkpoint, CommandLine& line) {
  AddShow(checkpoint, "list", "The checkpoints in a folder, newest first; reads their manifests",
          "  capstan checkpoint list out/checkpoints\n"
          "  capstan checkpoint list out/checkpoints -o json\n"
          "KIND: full, or incremental on the oldest one whose files it needs. SIZE: of its own.",
          line, Depth::kManifests);
  AddShow(checkpoint, "verify", "Read every byte of the checkpoints in a folder",
          "  capstan checkpoint verify out/checkpoints\n"
          "  capstan checkpoint verify out/checkpoints/checkpoint-7\n"
          "Exit code: 0 all that are complete are whole, 1 one is damaged or none is complete.",
          line, Depth::kEveryByte);
  auto job_id = std::make_shared<std::string>();
  AddCommand(checkpoint, "save", "Take a checkpoint of a running job now",
             "  capstan checkpoint save lenet-1\n"
             "Waits until it is complete; interrupted, the checkpoint goes on.\n"
             "Exit code: 0 it is complete, 1 it was given up, or the job has ended.",
             line, [job_id](const Settings& settings) { return Save(settings, *job_id); })
      ->add_option("JOB", *job_id, "Id of the job, as `capstan job list` shows it")
      ->required();
  AddRestore(checkpoint, line);
}

void AddRecoverCommand(CLI::App& job, CommandLine& line) {
  auto arguments = std::make_shared<RestoreArguments>();
  CLI::App* recover = AddCommand(
      job, "recover", "Take a job back whose scheduler has lost its store, and follow it",
      "  capstan job recover --checkpoint=out/checkpoints\n"
      "The job goes on from its newest whole checkpoint, under a new id, and trains again what it\n"
      "did since then: the logs that servers keep of it are not read.\n"
      "Exit code: as `capstan checkpoint restore`.",
      line, [arguments](const Settings& settings) { return Restore(settings, *arguments); });
  recover
      ->add_option("--checkpoint", arguments->folder,
                   "The job's folder of checkpoints, or one of them")
      ->type_name("FOLDER")
      ->required();
  AddRestoreOptions(*recover, *arguments);
}

}  // namespace capstan::cli
