#include "scheduler/cli/job/follow.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/observability/printable.h"
#include "common/time/clock.h"
#include "scheduler/cli/client/patience.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/job/job_logs.h"
#include "scheduler/cli/view/progress.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

constexpr absl::Duration kWaitLimit = absl::Milliseconds(500);     // Longest delay of a signal.
constexpr absl::Duration kLogsInterval = absl::Milliseconds(200);  // Between reads of the logs.
constexpr absl::Duration kRedrawInterval = absl::Milliseconds(150);
constexpr int kColumnsDefault = 80;

bool OnTerminal() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && terminal != nullptr && std::string(terminal) != "dumb";
}

int TerminalColumns() {
  struct winsize size = {};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kColumnsDefault;
}

// Prints updates, and remembers if the current line shows a bar.
class Screen {
 public:
  explicit Screen(Show show) : show_(show), terminal_(OnTerminal()) {}
  ~Screen() { Clear(); }

  bool terminal() const { return terminal_; }

  void Line(const std::string& line) {
    Clear();
    if (ShowsProgress()) Print(absl::StrCat(line, "\n"));
  }

  void Bar(const std::string& bar) {
    if (!ShowsProgress() || bar.empty()) return;
    PrintAsItIs(absl::StrCat("\r", Printable(bar), "\x1b[K"));
    has_bar_ = true;
  }

  // Compares the lines, not the revisions: a revision does not count values of this moment, such as
  // ages.
  void Status(const v1::JobStatus& job) {
    if (show_ != Show::kChanges) return;
    std::string line = ToJsonLine(job);
    if (line == status_) return;
    Print(line);
    status_ = std::move(line);
  }

 private:
  bool ShowsProgress() const { return show_ == Show::kProgress || show_ == Show::kLogs; }

  void Clear() {
    if (has_bar_) PrintAsItIs("\r\x1b[K");
    has_bar_ = false;
  }

  const Show show_;
  const bool terminal_;
  bool has_bar_ = false;
  std::string status_;  // The last line of Status().
};

}  // namespace

absl::StatusOr<v1::JobStatus> FollowJob(SchedulerClient& scheduler, const std::string& job_id,
                                        const FollowOptions& options) {
  const SteadyClock clock;
  Screen screen(options.show);
  ProgressView view({.terminal = screen.terminal()});
  Patience patience(scheduler.address(),
                    {.limit = options.patience,
                     .meanwhile = "the job goes on",
                     .say = [&screen](const std::string& line) { screen.Line(line); }});
  const bool shows_logs = options.show == Show::kLogs;
  JobLogs logs(scheduler, job_id,
               {.prefix = JobLogs::Options::Prefix::kAlways,
                .print = [&screen](const std::string& line) { screen.Line(line); },
                .say = [&screen](const std::string& line) { screen.Line(line); }});
  uint64_t revision = 0;
  while (Interrupts::Signal() == 0) {
    const absl::StatusOr<v1::JobStatus> job =
        scheduler.WaitJob(job_id, revision, shows_logs ? kLogsInterval : kWaitLimit);
    if (patience.AsksAgain(job.status())) continue;
    if (!job.ok()) return job.status();
    screen.Status(*job);
    revision = job->revision();
    if (shows_logs && HasEnded(job->state())) {
      logs.ReadToEnd(*job);
    } else if (shows_logs) {
      logs.Read(*job);
    }
    view.SetColumns(TerminalColumns());
    const ProgressView::Update update = view.Step(*job, clock.Now());
    for (const std::string& line : update.lines) screen.Line(line);
    screen.Bar(update.bar);
    if (HasEnded(job->state())) return job;
    Interrupts::Sleep(kRedrawInterval);
  }
  return absl::CancelledError(absl::StrCat("stopped following ", job_id));
}

int JobExitCode(const v1::JobStatus& job) {
  return job.state() == v1::SUCCEEDED ? kExitDone : kExitFailed;
}

}  // namespace capstan::cli
