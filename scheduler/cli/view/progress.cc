#include "scheduler/cli/view/progress.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/cli/view/format.h"
#include "scheduler/cli/view/job_view.h"
#include "scheduler/cli/view/text_table.h"

namespace capstan::cli {
namespace {

constexpr int kBarWidthMax = 30;
constexpr int kBarWidthMin = 5;

double Done(const v1::JobStatus& job) {
  if (job.samples_total() <= 0) return 0.0;
  const double done =
      static_cast<double>(job.samples_done()) / static_cast<double>(job.samples_total());
  return std::clamp(done, 0.0, 1.0);
}

int StalenessMax(const v1::JobStatus& job) {
  for (int k = job.staleness_counts_size() - 1; k >= 0; --k) {
    if (job.staleness_counts(k) > 0) return k;
  }
  return -1;
}

std::string TimeLeft(const v1::JobStatus& job) {
  constexpr double kSecondsMax = 1e6;
  if (!(job.samples_per_second() > 0)) return "";
  const double seconds =
      static_cast<double>(job.samples_total() - job.samples_done()) / job.samples_per_second();
  if (!(seconds >= 0 && seconds < kSecondsMax)) return "";
  const int64_t left = std::llround(seconds);
  return absl::StrFormat("%d:%02d left", left / 60, left % 60);
}

// Everything after the bar. `staleness` is left out where nothing was counted.
std::vector<std::string> Facts(const v1::JobStatus& job) {
  std::vector<std::string> facts = {absl::StrFormat("%.0f %%", 100 * Done(job))};
  if (job.phase() != "training" && !job.phase().empty()) facts.push_back(job.phase());
  if (job.samples_done() > 0) {
    facts.push_back(FormatRate(job.samples_per_second()));
    facts.push_back(absl::StrCat("loss ", FormatLoss(job.loss())));
    if (HasAccuracy(job.objective())) {
      facts.push_back(absl::StrCat("accuracy ", FormatShare(job.accuracy())));
    }
  }
  const int staleness = StalenessMax(job);
  if (staleness >= 0) facts.push_back(absl::StrCat("staleness <= ", staleness));
  const std::string left = TimeLeft(job);
  if (!left.empty()) facts.push_back(left);
  return facts;
}

std::string Head(const v1::JobStatus& job) {
  const int epoch = std::min(job.epoch() + 1, job.epochs());
  return absl::StrCat(job.job_id(), "  epoch ", epoch, "/", job.epochs());
}

std::string Bar(double done, int width) {
  const int full = static_cast<int>(std::floor(done * width));
  return absl::StrCat("[", std::string(static_cast<size_t>(full), '#'),
                      std::string(static_cast<size_t>(width - full), '-'), "]");
}

}  // namespace

std::string ProgressBar(const v1::JobStatus& job, int columns) {
  const std::string head = Printable(Head(job));
  const std::string facts = Printable(absl::StrJoin(Facts(job), "  "));
  const int room =
      columns - static_cast<int>(head.size() + facts.size()) - 5;  // Gaps and brackets.
  const int width = std::clamp(room, kBarWidthMin, kBarWidthMax);
  std::string line = absl::StrCat(head, "  ", Bar(Done(job), width), " ", facts);
  if (static_cast<int>(line.size()) > columns)
    line.resize(static_cast<size_t>(std::max(0, columns)));
  return line;
}

std::string ProgressLine(const v1::JobStatus& job) {
  return Printable(absl::StrCat(Head(job), "  ", absl::StrJoin(Facts(job), "  ")));
}

ProgressView::Update ProgressView::Step(const v1::JobStatus& job, Instant now) {
  Update update;
  for (; results_told_ < job.results_size(); ++results_told_) {
    update.lines.push_back(EpochLine(job.results(results_told_), job));
    line_time_ = now;  // It tells progress, too.
  }
  if (job.restarts() > restarts_told_) {
    restarts_told_ = job.restarts();
    update.lines.push_back(absl::StrCat(
        "a task was restarted (", restarts_told_, " of ",
        job.effective_spec().resources().max_restarts(), " allowed)"));
  }
  if (HasEnded(job.state())) return update;
  if (job.state() == v1::PENDING) {
    const std::string words = Printable(
        absl::StrCat(job.job_id(), " PENDING", job.detail().empty() ? "" : ": ", job.detail()));
    if (words != told_) update.lines.push_back(words);
    told_ = words;
    return update;
  }
  if (options_.terminal) {
    update.bar = ProgressBar(job, options_.columns - 1);  // The last column would wrap on some.
    return update;
  }
  if (!line_told_ || now - line_time_ >= options_.line_interval) {
    update.lines.push_back(ProgressLine(job));
    line_told_ = true;
    line_time_ = now;
  }
  return update;
}

}  // namespace capstan::cli
