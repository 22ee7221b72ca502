// Console: how every command speaks to its user.
//
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_CONSOLE_H_
#define CAPSTAN_SCHEDULER_CLI_CONSOLE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace capstan::cli {

// Standard output. A closed pipe is no error.
void Print(absl::string_view text);

// Standard error: "capstan: text".
void Note(absl::string_view text);

// Standard error: "capstan: message". Returns the exit code for it.
int Fail(const absl::Status& status);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CONSOLE_H_
