// Command names: makes the message for a command that does not exist.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_SCHEDULER_CLI_COMMAND_NAMES_H_
#define CAPSTAN_SCHEDULER_CLI_COMMAND_NAMES_H_

#include <string>
#include <vector>

#include "common/command_line/command.h"

namespace capstan::cli {

// `arguments` are the arguments behind the program's name. If they name a command that `program`
// does not have, returns "there is no command \"job ls\"; did you mean \"job list\"? job has list,
// ...". Otherwise returns an empty text, even if an argument is wrong in another way.
std::string UnknownCommand(Command program, const std::vector<std::string>& arguments);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_COMMAND_NAMES_H_
