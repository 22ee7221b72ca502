// Patience: decides if a call is repeated while the scheduler is away, for a limited time.
//
//   ANSWERS --no answer--> AWAY, with a note --an answer--> ANSWERS, with a note
//                            \ for longer than `limit` --> the caller gives up
//
//   Patience patience(scheduler.address());
//   while (Interrupts::Signal() == 0) {
//     const auto job = scheduler.GetJob(id);
//     if (patience.AsksAgain(job.status())) continue;
//     if (!job.ok()) return job.status();
//     ...
//   }
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CLI_CLIENT_PATIENCE_H_
#define CAPSTAN_SCHEDULER_CLI_CLIENT_PATIENCE_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "common/time/instant.h"

namespace capstan::cli {

class Patience {
 public:
  struct Options {
    absl::Duration limit = absl::Minutes(1);            // After the first call without an answer.
    absl::Duration interval = absl::Milliseconds(500);  // Wait between two such calls.
    std::string meanwhile;                              // "the job goes on"; may be empty.
    std::function<void(const std::string& line)> say;   // Prints a note. Default: Note().
  };
  // `address` is the scheduler's, for the notes.
  Patience(std::string address, Options options);

  // Takes the status of a call. Returns true if the scheduler did not answer (kUnavailable,
  // kDeadlineExceeded) and the caller should repeat the call: the interval is over, or a signal has
  // come. Returns false after an answer, or if the limit is over.
  bool AsksAgain(const absl::Status& status);

 private:
  const std::string address_;
  const Options options_;
  const SteadyClock clock_;
  std::optional<Instant> away_since_;
};

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CLIENT_PATIENCE_H_
