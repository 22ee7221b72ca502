// Progress: what someone who follows a job sees, as a pure function of the statuses that arrive.
//
// On a terminal there is one bar that is redrawn, and a line that stays for what is done; in a
// pipe there are only lines, progress at most every few seconds.
// Thread safety: thread-compatible. Reads no clock.
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_PROGRESS_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_PROGRESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/time/instant.h"
#include "proto/scheduler.pb.h"

namespace capstan::cli {

// "lenet-1  epoch 2/5  [#####-----] 52 %  8,412 samples/s  loss 0.4120  accuracy 85.10 %
// staleness at most 2  0:12 left" in at most `columns` characters: the bar shrinks and goes first,
// then staleness, rate, loss; accuracy and the time left stay longest. No control characters.
std::string ProgressBar(const v1::JobStatus& job, int columns);

// The same facts for a line in a pipe, without bar and cut.
std::string ProgressLine(const v1::JobStatus& job);

class ProgressView {
 public:
  struct Options {
    bool terminal = false;
    int columns = 80;                                 // Of the terminal.
    absl::Duration line_interval = absl::Seconds(5);  // Between progress lines in a pipe.
  };
  struct Update {
    std::vector<std::string> lines;  // To print for good, before the bar.
    std::string bar;                 // Terminal only: replaces the one before. Empty: none.
  };

  explicit ProgressView(const Options& options) : options_(options) {}

  // The terminal's width has changed.
  void SetColumns(int columns) { options_.columns = columns; }

  // What `job` has that the statuses before it had not. An ended job gives its last epochs and no
  // bar; EndSummary is the caller's.
  Update Step(const v1::JobStatus& job, Instant now);

 private:
  Options options_;
  std::string told_;  // State, phase and detail told last.
  int results_told_ = 0;
  int restarts_told_ = 0;
  int64_t events_told_ = 0;  // Those not kept any more with them.
  int64_t kept_told_ = 0;    // model_kept_until_unix_ms.
  bool line_told_ = false;
  Instant line_time_;
};

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_PROGRESS_H_
