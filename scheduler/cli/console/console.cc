#include "scheduler/cli/console/console.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "common/observability/printable.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"

namespace capstan::cli {
namespace {

int g_output_error = 0;  // The errno of OutputStatus(); 0: none.

}  // namespace

void Print(absl::string_view text) {
  static const bool terminal = isatty(STDOUT_FILENO) == 1;
  PrintAsItIs(terminal ? Printable({text.data(), text.size()}, Lines::kMany) : text);
}

void PrintAsItIs(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    // After a signal nobody waits for a reader that does not read.
    if (errno == EINTR && Interrupts::Signal() != 0) return;
    if (errno == EINTR) continue;
    if (errno != EPIPE && g_output_error == 0) g_output_error = errno;
    return;
  }
}

absl::Status OutputStatus() {
  if (g_output_error == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(g_output_error, "standard output");
}

void Note(absl::string_view text) {
  std::fprintf(stderr, "capstan: %s\n",
               Printable({text.data(), text.size()}, Lines::kMany).c_str());
}

int Fail(const absl::Status& status) {
  Note(status.message());
  return ExitCodeOf(status);
}

}  // namespace capstan::cli
