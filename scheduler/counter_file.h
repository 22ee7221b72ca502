// CounterFile: the two numbers that must grow over a scheduler's restarts: how often it was started, and
// how many jobs it took.
//
// A small text file ("lives N" and "jobs N", a line each), replaced whole by an atomic rename.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_COUNTER_FILE_H_
#define CAPSTAN_SCHEDULER_COUNTER_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace capstan::scheduler {

class CounterFile {
 public:
  // Reads `path` (missing: both are 0) and counts this life.
  // Errors: kDataLoss     the file holds something else.
  //         kUnavailable  it cannot be read or written; names it.
  static absl::StatusOr<CounterFile> Open(const std::string& path);

  uint64_t life() const { return lives_; }  // From 1.

  // The number of the next job, from 1; recorded before it is returned.
  // Errors: kUnavailable  the file cannot be written; the number was not used.
  absl::StatusOr<uint64_t> NextJob();

 private:
  CounterFile(std::string path, uint64_t lives, uint64_t jobs);
  absl::Status Write(uint64_t lives, uint64_t jobs) const;

  std::string path_;
  uint64_t lives_;
  uint64_t jobs_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_COUNTER_FILE_H_
