#include "scheduler/cli/view/progress.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/cli/view/event_view.h"
#include "scheduler/cli/view/job_view.h"
#include "scheduler/cli/view/text/format.h"
#include "scheduler/cli/view/text/text_table.h"

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

// The facts in the order in which a narrow line leaves them out.
enum class Rank { kStaleness, kRate, kLoss, kPhase, kShare, kTimeLeft, kAccuracy };

struct Fact {
  Rank rank = Rank::kStaleness;
  std::string text;
};

// Returns all facts behind the bar. Staleness is left out if none was counted.
std::vector<Fact> Facts(const v1::JobStatus& job) {
  std::vector<Fact> facts = {{Rank::kShare, absl::StrFormat("%.0f %%", 100 * Done(job))}};
  if (job.phase() != "training" && !job.phase().empty()) {
    facts.push_back({Rank::kPhase, job.phase()});
  }
  if (job.samples_done() > 0) {
    facts.push_back({Rank::kRate, FormatRate(job.samples_per_second())});
    facts.push_back({Rank::kLoss, absl::StrCat("loss ", FormatLoss(job.loss()))});
    if (HasAccuracy(job, job.accuracy())) {
      facts.push_back({Rank::kAccuracy, absl::StrCat("accuracy ", FormatShare(job.accuracy()))});
    }
  }
  const int staleness = StalenessMax(job);
  if (staleness >= 0) {
    facts.push_back({Rank::kStaleness, absl::StrCat("staleness <= ", staleness)});
  }
  const std::string left = TimeLeft(job);
  if (!left.empty()) facts.push_back({Rank::kTimeLeft, left});
  return facts;
}

std::string Joined(const std::vector<Fact>& facts) {
  const auto append = [](std::string* out, const Fact& fact) { out->append(fact.text); };
  return Printable(absl::StrJoin(facts, "  ", append));
}

// Leaves out the least important facts until the rest has at most `room` characters, or only one
// fact remains.
std::string JoinedWithin(std::vector<Fact> facts, int room) {
  std::string joined = Joined(facts);
  while (static_cast<int>(joined.size()) > room && facts.size() > 1) {
    facts.erase(std::min_element(facts.begin(), facts.end(),
                                 [](const Fact& a, const Fact& b) { return a.rank < b.rank; }));
    joined = Joined(facts);
  }
  return joined;
}

std::string Head(const v1::JobStatus& job) {
  return absl::StrCat(job.job_id(), "  epoch ", std::max(job.epoch(), 1), "/", job.epochs());
}

std::string Bar(double done, int width) {
  const int full = static_cast<int>(std::floor(done * width));
  return absl::StrCat("[", std::string(static_cast<size_t>(full), '#'),
                      std::string(static_cast<size_t>(width - full), '-'), "]");
}

}  // namespace

std::string ProgressBar(const v1::JobStatus& job, int columns) {
  const std::string head = Printable(Head(job));
  const std::string facts = Joined(Facts(job));
  const int room =
      columns - static_cast<int>(head.size() + facts.size()) - 5;  // 5 for gaps and brackets.
  if (room >= kBarWidthMin) {
    return absl::StrCat(head, "  ", Bar(Done(job), std::min(room, kBarWidthMax)), " ", facts);
  }
  const int left = columns - static_cast<int>(head.size()) - 2;
  std::string line = absl::StrCat(head, "  ", JoinedWithin(Facts(job), left));
  if (static_cast<int>(line.size()) > columns) {
    line.resize(static_cast<size_t>(std::max(0, columns)));
  }
  return line;
}

std::string ProgressLine(const v1::JobStatus& job) {
  return absl::StrCat(Printable(Head(job)), "  ", Joined(Facts(job)));
}

ProgressView::Update ProgressView::Step(const v1::JobStatus& job, Instant now) {
  Update update;
  for (; results_told_ < job.results_size(); ++results_told_) {
    update.lines.push_back(EpochLine(job.results(results_told_), job));
    line_time_ = now;  // This line also shows progress.
  }
  if (job.restarts() > restarts_told_) {
    restarts_told_ = job.restarts();
    update.lines.push_back(absl::StrCat("a task was restarted (", restarts_told_, " of ",
                                        job.effective_spec().resources().max_restarts(),
                                        " allowed)"));
  }
  for (int i = 0; i < job.events_size(); ++i) {
    const int64_t number = job.events_forgotten() + i;
    if (number < events_told_) continue;
    events_told_ = number + 1;
    update.lines.push_back(EventLine(job.events(i)));
  }
  if (HasEnded(job.state())) return update;
  if (job.model_kept_until_unix_ms() != kept_told_) {
    kept_told_ = job.model_kept_until_unix_ms();
    if (kept_told_ != 0) {
      update.lines.push_back(Printable(absl::StrCat(job.job_id(), ": ", job.detail())));
    }
  }
  if (job.state() == v1::PENDING) {
    const std::string words = Printable(
        absl::StrCat(job.job_id(), " PENDING", job.detail().empty() ? "" : ": ", job.detail()));
    if (words != told_) update.lines.push_back(words);
    told_ = words;
    return update;
  }
  if (options_.terminal) {
    update.bar = ProgressBar(job, options_.columns - 1);  // Some terminals wrap a full line.
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
