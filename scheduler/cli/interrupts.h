// Interrupts: SIGINT, SIGTERM and SIGHUP as a value to look at, instead of the end of the process.
//
// Thread safety: one object a process, made in the main thread; the static methods are thread-safe.
#ifndef CAPSTAN_SCHEDULER_CLI_INTERRUPTS_H_
#define CAPSTAN_SCHEDULER_CLI_INTERRUPTS_H_

#include "absl/time/time.h"

namespace capstan::cli {

class Interrupts {
 public:
  // Installs the handlers, also where the signals were ignored (a shell's background job). SIGPIPE
  // is ignored from here on: a closed pipe must not keep a cluster from being taken down.
  Interrupts();
  ~Interrupts();  // Puts back what was there.
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // The first signal that came since the object was made; 0: none.
  static int Signal();

  // Waits for `duration`, or until a signal comes. True: a signal came (now or before).
  static bool Sleep(absl::Duration duration);
};

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_INTERRUPTS_H_
