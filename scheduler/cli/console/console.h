// Console: the output functions of all commands.
//
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_CONSOLE_CONSOLE_H_
#define CAPSTAN_SCHEDULER_CLI_CONSOLE_CONSOLE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace capstan::cli {

// Writes to standard output. A terminal gets the Printable form, since parts of nearly every text
// come from elsewhere. A closed pipe is no error; OutputStatus() returns any other error.
// REQUIRES: SIGPIPE is ignored.
void Print(absl::string_view text);

// Writes `text` unchanged to standard output: for this program's own control sequences around
// Printable text.
void PrintAsItIs(absl::string_view text);

// Returns the first error of writing to standard output, such as a full disk.
absl::Status OutputStatus();

// Writes "capstan: text" to standard error, in its Printable form.
void Note(absl::string_view text);

// Writes "capstan: message" to standard error. Returns the exit code for `status`.
int Fail(const absl::Status& status);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CONSOLE_CONSOLE_H_
