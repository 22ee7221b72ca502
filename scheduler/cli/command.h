// Command: how the commands of the line are declared.
//
// A command file adds its subcommands to the parser; the one that the user names leaves a function
// in `CommandLine::run`, which main calls. Nothing is done while arguments are parsed.
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_COMMAND_H_

#include <CLI/App.hpp>
#include <functional>
#include <string>

#include "scheduler/cli/settings.h"

namespace capstan::cli {

struct CommandLine {
  SettingFlags flags;
  std::function<int()> run;  // Of the subcommand that was named; returns the exit code.
};

// A function of a command: has resolved settings, returns the exit code.
using CommandFunction = std::function<int(const Settings& settings)>;

// Adds a group of commands, such as `job`.
CLI::App* AddGroup(CLI::App& parent, const std::string& name, const std::string& description);

// kThisMachine: the command calls no scheduler, and --scheduler is left out.
enum class Concerns { kScheduler, kThisMachine };

// Adds a command with --scheduler, --output and --help; `examples` is shown below the
// help. `line` outlives parsing.
CLI::App* AddCommand(CLI::App& group, const std::string& name, const std::string& description,
                     const std::string& examples, CommandLine& line, CommandFunction run,
                     Concerns concerns = Concerns::kScheduler);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_COMMAND_H_
