// Interrupts: makes SIGINT, SIGTERM and SIGHUP a value that commands read, instead of the end of
// the process.
//
// Thread safety: the main thread makes the only object of the process; the static methods are
// thread-safe.
#ifndef CAPSTAN_SCHEDULER_CLI_CONSOLE_INTERRUPTS_H_
#define CAPSTAN_SCHEDULER_CLI_CONSOLE_INTERRUPTS_H_

#include "absl/time/time.h"

namespace capstan::cli {

class Interrupts {
 public:
  // Installs the handlers, even if the signals were ignored (in a shell's background job).
  Interrupts();
  ~Interrupts();  // Restores the earlier handlers.
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Returns the first signal since the object was made; 0: none.
  static int Signal();

  // Waits for `duration` (at most 60 s), or until a signal comes. Returns true if a signal came,
  // now or earlier.
  static bool Sleep(absl::Duration duration);
};

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CONSOLE_INTERRUPTS_H_
