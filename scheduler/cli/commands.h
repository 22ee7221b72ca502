// The groups of commands that `capstan` has, in the order in which `capstan --help` lists them.
//
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_COMMANDS_H_
#define CAPSTAN_SCHEDULER_CLI_COMMANDS_H_

#include "common/command_line/command.h"
#include "scheduler/cli/command.h"

namespace capstan::cli {

// Adds the commands of one file to their group by AddCommand(). `line` outlives parsing.
using AddFunction = void(Command group, CommandLine& line);

AddFunction AddCertCommands;
AddFunction AddCheckpointCommands;
AddFunction AddClusterCommands;
AddFunction AddConfigCommands;
AddFunction AddDiffCommand;
AddFunction AddInitCommand;
AddFunction AddJobCommands;
AddFunction AddLogsCommand;
AddFunction AddNodeCommands;
AddFunction AddPredictionCommands;
AddFunction AddRecoverCommand;
AddFunction AddRestoreCommand;
AddFunction AddResumeCommand;
AddFunction AddStopCommand;
AddFunction AddTableCommands;
AddFunction AddVersionCommand;

struct CommandGroup {
  const char* name;  // "": its commands are in no group, as `capstan init`.
  const char* description;
  AddFunction* add[5];  // Unused entries are null.
};
inline constexpr CommandGroup kCommandGroups[] = {
    {"cluster", "A cluster on this machine", {AddClusterCommands}},
    {"", "", {AddInitCommand}},
    {"job",
     "Submit and watch training jobs",
     {AddJobCommands, AddStopCommand, AddResumeCommand, AddRecoverCommand, AddLogsCommand}},
    {"node", "The cluster's servers and workers", {AddNodeCommands}},
    {"checkpoint", "Copies of whole jobs on disk", {AddCheckpointCommands, AddRestoreCommand}},
    {"table", "The parameters that servers hold", {AddTableCommands}},
    {"", "", {AddPredictionCommands, AddDiffCommand}},
    {"cert", "Certificates: who may take part in a cluster", {AddCertCommands}},
    {"config", "Settings of this command line", {AddConfigCommands}},
    {"", "", {AddVersionCommand}},
};

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_COMMANDS_H_
