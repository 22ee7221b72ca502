#include "tests/benchmark/process_usage.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace capstan::benchmark {

int64_t ResidentBytesOf(pid_t pid) {
  std::ifstream statm(absl::StrCat("/proc/", pid, "/statm"));
  int64_t size = 0, resident = 0;
  statm >> size >> resident;  // Pages.
  return resident * sysconf(_SC_PAGESIZE);
}

int OpenFilesOf(pid_t pid) {
  std::error_code error;
  const std::filesystem::directory_iterator files(absl::StrCat("/proc/", pid, "/fd"), error);
  if (error) return 0;
  return static_cast<int>(std::distance(begin(files), end(files)));
}

}  // namespace capstan::benchmark
