// capstan: the command line. It adds the groups of commands, each of which has its own file.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/net/credentials.h"
#include "common/process/version.h"
#include "common/storage/private_files.h"
#include "scheduler/cli/certificates/cert_command.h"
#include "scheduler/cli/cluster_command.h"
#include "scheduler/cli/command.h"
#include "scheduler/cli/command_names.h"
#include "scheduler/cli/config_command.h"
#include "scheduler/cli/console.h"
#include "scheduler/cli/diff/diff_command.h"
#include "scheduler/cli/exit_code.h"
#include "scheduler/cli/init/init_command.h"
#include "scheduler/cli/job_command.h"
#include "scheduler/cli/logs_command.h"
#include "scheduler/cli/operations/checkpoint_command.h"
#include "scheduler/cli/operations/node_command.h"
#include "scheduler/cli/operations/restore_command.h"
#include "scheduler/cli/operations/stop_command.h"
#include "scheduler/cli/prediction_command.h"
#include "scheduler/cli/table_command.h"

namespace capstan::cli {
namespace {

void AddCommands(CLI::App& app, CommandLine& line) {
  app.require_subcommand(1);
  AddClusterCommands(*AddGroup(app, "cluster", "A cluster on this machine"), line);
  AddInitCommand(app, line);
  CLI::App* job = AddGroup(app, "job", "Submit and watch training jobs");
  AddJobCommands(*job, line);
  AddStopCommand(*job, line);
  AddResumeCommand(*job, line);
  AddRecoverCommand(*job, line);
  AddLogsCommand(*job, line);
  AddNodeCommands(*AddGroup(app, "node", "The cluster's servers and workers"), line);
  AddCheckpointCommands(*AddGroup(app, "checkpoint", "Copies of whole jobs on disk"), line);
  AddTableCommands(*AddGroup(app, "table", "The parameters that servers hold"), line);
  AddPredictionCommands(app, line);
  AddDiffCommand(app, line);
  AddCertCommands(*AddGroup(app, "cert", "Certificates: who may take part in a cluster"), line);
  AddConfigCommands(*AddGroup(app, "config", "Settings of this command line"), line);
  AddVersionCommand(app, line);
  // The footer comes last, because later commands would inherit it.
  app.footer(
      "Examples:\n"
      "  capstan cluster up                  # a cluster on this machine\n"
      "  capstan job submit job.textproto    # train, and follow the job\n"
      "  capstan job describe lenet-1\n"
      "  capstan cluster down\n"
      "Exit codes: 0 done, 1 the job failed, 2 wrong usage or job file, 75 try again (scheduler\n"
      "unreachable), 130 and 143 interrupted. Each command has --help with examples.");
}

int Main(int argc, char** argv) {
  KeepNewFilesPrivate();
  RequireTls13();
  CLI::App app("capstan: trains models on a cluster of parameter servers and workers", "capstan");
  CommandLine line;
  AddCommands(app, line);
  app.set_version_flag("--version", absl::StrCat("capstan ", kVersion));
  const std::string unknown = UnknownCommand(app, {argv + 1, argv + argc});
  if (!unknown.empty()) {
    Note(unknown);
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // CLI11 reports errors and --help only this way.
    return app.exit(error) == 0 ? kExitDone : kExitUsage;
  }
  return line.run();
}

}  // namespace
}  // namespace capstan::cli

int main(int argc, char** argv) { return capstan::cli::Main(argc, argv); }
