// capstan: the command line. commands.h lists its groups of commands, which have their own files.
#include <signal.h>

#include <optional>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "common/net/grpc/credentials.h"
#include "common/process/version.h"
#include "common/storage/files/private_files.h"
#include "scheduler/cli/command.h"
#include "scheduler/cli/command_names.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"

namespace capstan::cli {
namespace {

void AddCommands(Command program, CommandLine& line) {
  program.RequireCommand();
  for (const CommandGroup& group : kCommandGroups) {
    const std::string name = group.name;
    const Command parent = name.empty() ? program : AddGroup(program, name, group.description);
    for (AddFunction* const add : group.add) {
      if (add != nullptr) add(parent, line);
    }
  }
  // The footer comes last, because later commands would inherit it.
  program.SetFooter(
      "Examples:\n"
      "  capstan cluster up                  # a cluster on this machine\n"
      "  capstan job submit job.textproto    # train, and follow the job\n"
      "  capstan job describe lenet-1\n"
      "  capstan cluster down\n"
      "Exit codes: 0 done, 1 the job failed, 2 wrong usage or job file, 75 try again (scheduler\n"
      "unreachable), 130 and 143 interrupted. Each command has --help with examples.");
}

int RunCommand(int argc, char** argv) {
  Program program("capstan: trains models on a cluster of parameter servers and workers",
                  "capstan");
  CommandLine line;
  AddCommands(program, line);
  program.AddVersion(absl::StrCat("capstan ", kVersion));
  const std::string unknown = UnknownCommand(program, {argv + 1, argv + argc});
  if (!unknown.empty()) {
    Note(unknown);
    return kExitUsage;
  }
  std::ostringstream help;
  const std::optional<int> exit_code = program.Parse(argc, argv, help);
  Print(help.str());
  return exit_code.has_value() ? *exit_code : line.run();
}

int Main(int argc, char** argv) {
  KeepNewFilesPrivate();
  RequireTls13();
  signal(SIGPIPE, SIG_IGN);  // A closed pipe ends neither a call nor the stop of a cluster.
  const int code = RunCommand(argc, argv);
  const absl::Status output = OutputStatus();
  if (output.ok()) return code;
  Fail(output);
  return code == kExitDone ? kExitFailed : code;
}

}  // namespace
}  // namespace capstan::cli

int main(int argc, char** argv) { return capstan::cli::Main(argc, argv); }
