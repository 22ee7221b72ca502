// Console: the output functions of all commands.
//
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_CONSOLE_H_
#define CAPSTAN_SCHEDULER_CLI_CONSOLE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace capstan::cli {

// Writes to standard output; on a terminal what is Printable of it, as parts of nearly every text
// come from elsewhere. A closed pipe is no error.
void Print(absl::string_view text);

// Writes to standard output as it is: for control sequences of this program around a text that is
// Printable.
void PrintAsItIs(absl::string_view text);

// Writes "capstan: text", what is Printable of it, to standard error.
void Note(absl::string_view text);

// Writes "capstan: message" to standard error. Returns the exit code for `status`.
int Fail(const absl::Status& status);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CONSOLE_H_
