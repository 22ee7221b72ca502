#include "scheduler/cli/console.h"

#include <cstdio>
#include <string>

#include "scheduler/cli/exit_code.h"

namespace capstan::cli {

void Print(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int Fail(const absl::Status& status) {
  const std::string message(status.message());
  std::fprintf(stderr, "capstan: %s\n", message.c_str());
  return ExitCodeOf(status);
}

}  // namespace capstan::cli
