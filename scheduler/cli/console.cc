#include "scheduler/cli/console.h"

#include <cstdio>
#include <string>

#include "scheduler/cli/exit_code.h"

namespace capstan::cli {

void Print(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Note(absl::string_view text) {
  std::fprintf(stderr, "capstan: %s\n", std::string(text).c_str());
}

int Fail(const absl::Status& status) {
  Note(status.message());
  return ExitCodeOf(status);
}

}  // namespace capstan::cli
