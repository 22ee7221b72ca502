#include "scheduler/counter_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "scheduler/write_file.h"

namespace capstan::scheduler {

CounterFile::CounterFile(std::string path, uint64_t lives, uint64_t jobs)
    : path_(std::move(path)), lives_(lives), jobs_(jobs) {}

absl::StatusOr<CounterFile> CounterFile::Open(const std::string& path) {
  uint64_t lives = 0;
  uint64_t jobs = 0;
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    std::ifstream file(path);
    if (!file) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
    std::string lives_word;
    std::string jobs_word;
    if (!(file >> lives_word >> lives >> jobs_word >> jobs) || lives_word != "lives" ||
        jobs_word != "jobs") {
      return absl::DataLossError(
          absl::StrCat(path, ": expected the lines \"lives <number>\" and \"jobs <number>\""));
    }
  }
  CounterFile counters(path, lives + 1, jobs);
  CAPSTAN_RETURN_IF_ERROR(counters.Write(counters.lives_, counters.jobs_));
  return counters;
}

absl::StatusOr<uint64_t> CounterFile::NextJob() {
  CAPSTAN_RETURN_IF_ERROR(Write(lives_, jobs_ + 1));
  return ++jobs_;
}

absl::Status CounterFile::Write(uint64_t lives, uint64_t jobs) const {
  return WriteFileAtomically(path_, absl::StrCat("lives ", lives, "\njobs ", jobs, "\n"));
}

}  // namespace capstan::scheduler
