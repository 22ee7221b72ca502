// Progress: converts the statuses of a followed job to the lines and the bar that the user sees.
//
// A terminal shows one bar, which is redrawn, and permanent lines for finished epochs and events. A
// pipe gets only lines, with progress at most every few seconds.
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

// Returns "lenet-1  epoch 2/5  [#####-----] 52 %  8,412 samples/s  loss 0.4120  accuracy 85.10 %
// staleness <= 2  0:12 left" in at most `columns` characters, without control characters. If the
// space is small, the bar shrinks and is left out first, then staleness, rate and loss. Accuracy
// and the time left stay longest.
std::string ProgressBar(const v1::JobStatus& job, int columns);

// Returns the same facts for a line in a pipe, without a bar and with no limit of length.
std::string ProgressLine(const v1::JobStatus& job);

class ProgressView {
 public:
  struct Options {
    bool terminal = false;
    int columns = 80;                                 // Width of the terminal.
    absl::Duration line_interval = absl::Seconds(5);  // Least time between lines in a pipe.
  };
  struct Update {
    std::vector<std::string> lines;  // Permanent lines, printed before the bar.
    std::string bar;                 // Terminal only: replaces the earlier bar. Empty: no bar.
  };

  explicit ProgressView(const Options& options) : options_(options) {}

  // Sets the terminal's width, which may change.
  void SetColumns(int columns) { options_.columns = columns; }

  // Returns the news in `job` since the last status. For an ended job these are its last epochs and
  // events, without a bar; the caller prints EndSummary().
  Update Step(const v1::JobStatus& job, Instant now);

 private:
  Options options_;
  std::string told_;  // The last line for a pending job.
  int results_told_ = 0;
  int restarts_told_ = 0;
  int64_t events_told_ = 0;  // Includes forgotten events.
  int64_t kept_told_ = 0;    // The last model_kept_until_unix_ms.
  bool line_told_ = false;
  Instant line_time_;
};

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_PROGRESS_H_
