// `capstan cert init|node|user|list|deny`.
#ifndef CAPSTAN_SCHEDULER_CLI_CERTIFICATES_CERT_COMMAND_H_
#define CAPSTAN_SCHEDULER_CLI_CERTIFICATES_CERT_COMMAND_H_

#include "scheduler/cli/command.h"

namespace capstan::cli {

// Adds the commands to the group `cert`; `line` outlives parsing.
void AddCertCommands(CLI::App& cert, CommandLine& line);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CERTIFICATES_CERT_COMMAND_H_
