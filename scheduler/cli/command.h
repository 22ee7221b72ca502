// Command: declares the commands of the command line.
//
// Each command file adds its subcommands to the parser. The subcommand that the user names stores a
// function in `CommandLine::run`, which main calls after the parser has finished.
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_COMMAND_H_

#include <functional>
#include <string>

#include "common/command_line/command.h"
#include "scheduler/cli/settings/settings.h"

namespace capstan::cli {

struct CommandLine {
  SettingFlags flags;
  std::function<int()> run;  // Runs the named subcommand; returns the exit code.
};

// Runs a command with resolved settings; returns the exit code.
using CommandFunction = std::function<int(const Settings& settings)>;

// Adds a group of commands, such as `job`.
Command AddGroup(Command parent, const std::string& name, const std::string& description);

// kThisMachine: the command calls no scheduler, and has neither --scheduler nor --tls-dir.
enum class Concerns { kScheduler, kThisMachine };

// Adds a command with --scheduler, --tls-dir, --output and --help; `examples` is shown below the
// help. `line` outlives parsing.
Command AddCommand(Command group, const std::string& name, const std::string& description,
                   const std::string& examples, CommandLine& line, CommandFunction run,
                   Concerns concerns = Concerns::kScheduler);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_COMMAND_H_
