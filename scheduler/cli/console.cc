#include "scheduler/cli/console.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "common/observability/printable.h"
#include "scheduler/cli/exit_code.h"

namespace capstan::cli {

void Print(absl::string_view text) {
  static const bool terminal = isatty(STDOUT_FILENO) == 1;
  PrintAsItIs(terminal ? Printable({text.data(), text.size()}, Lines::kMany) : text);
}

void PrintAsItIs(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
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
