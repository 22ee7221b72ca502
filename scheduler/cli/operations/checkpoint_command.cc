#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "common/storage/posix_disk.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/operations/checkpoint_files.h"
#include "scheduler/cli/operations/checkpoint_save.h"
#include "scheduler/cli/view/checkpoint_view.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

int ShowCheckpoints(const Settings& settings, const std::string& folder, Depth depth) {
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
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto saved = SaveCheckpoint(scheduler, job_id);
  if (!saved.ok()) return Fail(saved.status());
  Print(settings.format() == OutputFormat::kJson
            ? ToJson(*saved)
            : absl::StrCat("saved checkpoint ", saved->checkpoint_id(), " of ", job_id,
                           saved->host().empty() ? "" : " on " + saved->host(), "\n",
                           saved->folder(), "\n"));
  return kExitDone;
}

void AddShow(Command checkpoint, const std::string& name, const std::string& description,
             const std::string& examples, CommandLine& line, Depth depth) {
  auto folder = std::make_shared<std::string>();
  AddCommand(
      checkpoint, name, description, examples, line,
      [folder, depth](const Settings& settings) {
        return ShowCheckpoints(settings, *folder, depth);
      },
      Concerns::kThisMachine)
      .AddOption("FOLDER", *folder, "A folder of checkpoints, or a checkpoint")
      .Required();
}

}  // namespace

void AddCheckpointCommands(Command checkpoint, CommandLine& line) {
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
      .AddOption("JOB", *job_id, "Id of the job, as `capstan job list` shows it")
      .Required();
}

}  // namespace capstan::cli
