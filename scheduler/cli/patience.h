// Patience: goes on asking a scheduler that is away, for a while.
//
//   ANSWERS --no answer--> AWAY, and says so --an answer--> ANSWERS, and says so
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
#ifndef CAPSTAN_SCHEDULER_CLI_PATIENCE_H_
#define CAPSTAN_SCHEDULER_CLI_PATIENCE_H_

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
    absl::Duration limit = absl::Minutes(1);            // From the first call without an answer.
    absl::Duration interval = absl::Milliseconds(500);  // Between two such calls.
    std::string meanwhile;                              // "the job goes on"; may be empty.
    std::function<void(const std::string& line)> say;   // By default: Note.
  };
  // `address`: of the scheduler, for what is said.
  Patience(std::string address, Options options);

  // What a call came to. True: nobody answered (kUnavailable, kDeadlineExceeded), and the caller is
  // to ask again: it has waited, or a signal has come. False: an answer, or the time is over.
  bool AsksAgain(const absl::Status& status);

 private:
  const std::string address_;
  const Options options_;
  const SteadyClock clock_;
  std::optional<Instant> away_since_;
};

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_PATIENCE_H_
