#include "scheduler/core/work/sample_leases.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"

namespace capstan::scheduler {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Inserts `range` into disjoint ranges, and joins it with its neighbours.
void Insert(Range range, std::map<int64_t, int64_t>& ranges) {
  auto next = ranges.lower_bound(range.begin);
  if (next != ranges.end() && next->first == range.end) {
    range.end = next->second;
    next = ranges.erase(next);
  }
  if (next != ranges.begin()) {
    const auto before = std::prev(next);
    if (before->second == range.begin) {
      before->second = range.end;
      return;
    }
  }
  ranges.emplace(range.begin, range.end);
}

// Limit of a bin's clicks, and of its non-clicks: the sum of all bins cannot overflow.
constexpr int64_t kScoreCountMax = kCounterMax / (2 * ScoreCounts::kBinsMax);

absl::Status CheckFigures(int64_t correct, const OutputSums& outputs) {
  absl::Status status = CheckCount("correct", correct);
  if (!outputs.IsPossible()) {
    status.Update(absl::DataLossError(
        absl::StrCat("outputs: expected finite sums and counts of at most ", outputs.values)));
  }
  return status;
}

}  // namespace

bool Cover(absl::Span<const Range> ranges, int64_t position) {
  return std::any_of(ranges.begin(), ranges.end(), [position](const Range& range) {
    return range.begin <= position && position < range.end;
  });
}

absl::Status SampleLeases::Check() const {
  absl::Status status = CheckCount("begin", options_.begin);
  if (!status.ok()) return status;
  status.Update(CheckCount("count", options_.count, kCounterMax - options_.begin));
  status.Update(CheckCount("next lease", next_id_.value()));
  status.Update(CheckCount("positions done", positions_done_, kCounterMax - 1));
  status.Update(CheckCount("batches done", batches_done_));
  if (!status.ok()) return status;
  const Range all{options_.begin, options_.begin + options_.count};
  int64_t rest = options_.count;  // Neither ungranted nor held.
  const auto take = [&](const char* what, const Range& range) {
    status.Update(CheckRange(what, range.begin, all.begin, all.end));
    status.Update(CheckRange(what, range.end, range.begin, all.end));
    if (status.ok()) status.Update(CheckCount(what, range.size(), rest));
    if (status.ok()) rest -= range.size();
  };
  for (const auto& [begin, end] : ungranted_) take("ungranted positions", {begin, end});
  const int64_t ungranted = options_.count - rest;
  status.Update(CheckRange("ungranted positions", ungranted_count_, ungranted, ungranted));
  for (const auto& [id, held] : held_) {
    take("leased positions", held.positions);
    status.Update(CheckRange("done", held.done, held.positions.begin, held.positions.end));
    status.Update(CheckRange("lease", id.value(), 0, next_id_.value()));
  }
  for (const auto& [begin, result] : results_) {
    status.Update(CheckRange("evaluated positions", begin, all.begin, all.end));
    status.Update(CheckCount("evaluated samples", result.samples, options_.count));
    status.Update(CheckFigures(result.correct, result.outputs));
  }
  for (const auto& [bin, counts] : scores_.bins()) {
    status.Update(CheckCount("non-clicks of a score", counts.non_clicks, kScoreCountMax));
    status.Update(CheckCount("clicks of a score", counts.clicks, kScoreCountMax));
  }
  return status;
}

SampleLeases::SampleLeases(const Options& options)
    : options_(options), next_id_(options.first_id), ungranted_count_(options.count) {
  if (options_.count > 0) ungranted_.emplace(options_.begin, options_.begin + options_.count);
}

SampleLeases::SampleLeases() : SampleLeases(Options()) {}

void SampleLeases::Resume(absl::Span<const Range> untrained, int64_t batches) {
  ungranted_.clear();
  ungranted_count_ = 0;
  for (const Range& range : untrained) {
    if (range.empty()) continue;
    Insert(range, ungranted_);
    ungranted_count_ += range.size();
  }
  positions_done_ = options_.count - ungranted_count_;
  batches_done_ = batches;
}

std::vector<Range> SampleLeases::Undone() const {
  std::map<int64_t, int64_t> ranges = ungranted_;
  for (const auto& [id, held] : held_) {
    if (held.done < held.positions.end) Insert({held.done, held.positions.end}, ranges);
  }
  std::vector<Range> undone;
  for (const auto& [begin, end] : ranges) undone.push_back({begin, end});
  return undone;
}

int64_t SampleLeases::NextSize(const Pace& pace) const {
  const int64_t batch = options_.batch_size;
  if (options_.use == Use::kEvaluate) return kEvaluateBatches * batch;
  if (pace.share == 0) {
    const int64_t share = ungranted_count_ / (kSharesPerWorker * options_.workers);
    return std::clamp(share / batch, int64_t{1}, kTrainBatchesMax) * batch;
  }
  const double share = static_cast<double>(ungranted_count_) * pace.share / kSharesAtPace;
  const int64_t batches = std::min(static_cast<int64_t>(share), pace.positions_max) / batch;
  return std::max(batches, int64_t{1}) * batch;
}

std::optional<SampleLease> SampleLeases::Grant(Rank rank, const Pace& pace) {
  if (ungranted_.empty()) return std::nullopt;
  const auto first = ungranted_.begin();
  const Range lease{first->first, std::min(first->first + NextSize(pace), first->second)};
  const int64_t rest_end = first->second;
  ungranted_.erase(first);
  if (lease.end < rest_end) ungranted_.emplace(lease.end, rest_end);
  return Hold(rank, lease);
}

std::optional<SampleLease> SampleLeases::GrantAt(Rank rank, int64_t position) {
  const auto after = ungranted_.upper_bound(position);
  if (after == ungranted_.begin()) return std::nullopt;
  const auto around = std::prev(after);
  const auto [begin, end] = *around;
  if (position >= end) return std::nullopt;
  ungranted_.erase(around);
  if (begin < position) ungranted_.emplace(begin, position);
  if (position + 1 < end) ungranted_.emplace(position + 1, end);
  return Hold(rank, {position, position + 1});
}

SampleLease SampleLeases::Hold(Rank rank, const Range& positions) {
  ungranted_count_ -= positions.size();
  const LeaseId id = next_id_;
  ++next_id_;
  held_.emplace(id, Held{.rank = rank, .positions = positions, .done = positions.begin});
  return {id, positions};
}

void SampleLeases::Return(Rank rank) {
  for (auto it = held_.begin(); it != held_.end();) {
    const Held& held = it->second;
    if (held.rank != rank) {
      ++it;
      continue;
    }
    Range rest{held.done, held.positions.end};
    if (Planted(PlantedBug::kReturnWholeLease)) rest.begin = held.positions.begin;
    if (options_.use == Use::kEvaluate) {
      const int64_t partly = held.done - held.positions.begin;
      positions_done_ -= partly;
      batches_done_ -= CeilDivide(partly, options_.batch_size);
      if (!Planted(PlantedBug::kLosePartlyEvaluated)) rest.begin = held.positions.begin;
    }
    ungranted_count_ += rest.size();
    // Evaluation ranges are not joined with their neighbours, because their partition is fixed.
    if (options_.use == Use::kEvaluate) {
      ungranted_.emplace(rest.begin, rest.end);
    } else {
      Insert(rest, ungranted_);
    }
    it = held_.erase(it);
  }
}

absl::Status SampleLeases::Validate(const SampleReport& report) const {
  if (report.lease >= next_id_) {
    return absl::InvalidArgumentError(absl::StrCat("sample lease ", report.lease.value(),
                                                   " was never granted; the newest is ",
                                                   next_id_.value() - 1));
  }
  const auto it = held_.find(report.lease);
  if (it == held_.end()) return absl::OkStatus();
  const Range& positions = it->second.positions;
  if (report.position_done < positions.begin || report.position_done > positions.end) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sample lease ", report.lease.value(), ": position_done ", report.position_done,
        " is outside [", positions.begin, ", ", positions.end, "]"));
  }
  if (const absl::Status figures = CheckFigures(report.correct, report.outputs); !figures.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("sample lease ", report.lease.value(), ": ", figures.message()));
  }
  if (report.position_done < positions.end || report.scores.empty()) return absl::OkStatus();
  const int64_t expected = positions.size() * options_.scores;
  if (const int64_t scored = report.scores.Examples(); scored != expected) {
    return absl::InvalidArgumentError(absl::StrCat("sample lease ", report.lease.value(),
                                                   ": scores of ", scored,
                                                   " samples, expected its ", expected));
  }
  return absl::OkStatus();
}

absl::Status SampleLeases::Report(Rank rank, const SampleReport& report) {
  if (absl::Status status = Validate(report); !status.ok()) return status;
  const auto it = held_.find(report.lease);
  if (it == held_.end() || it->second.rank != rank) return absl::OkStatus();
  Held& held = it->second;
  const int64_t begin = held.positions.begin;
  if (report.position_done > held.done) {
    positions_done_ += report.position_done - held.done;
    batches_done_ += CeilDivide(report.position_done - begin, options_.batch_size) -
                     CeilDivide(held.done - begin, options_.batch_size);
    held.done = report.position_done;
  }
  if (held.done < held.positions.end || report.position_done < held.done) return absl::OkStatus();
  if (options_.use == Use::kEvaluate) {
    results_[begin] = {held.positions.size(), report.loss_sum, report.correct, report.outputs};
    scores_.Merge(report.scores);
  }
  held_.erase(it);
  return absl::OkStatus();
}

std::vector<SampleLease> SampleLeases::HeldBy(Rank rank) const {
  std::vector<SampleLease> leases;
  for (const auto& [id, held] : held_) {
    if (held.rank == rank) leases.push_back({id, held.positions});
  }
  return leases;
}

int SampleLeases::HeldCount(Rank rank) const {
  return static_cast<int>(std::count_if(
      held_.begin(), held_.end(), [rank](const auto& entry) { return entry.second.rank == rank; }));
}

EvaluationSum SampleLeases::Sum() const {
  EvaluationSum sum;
  for (const auto& [begin, result] : results_) {
    sum.samples = AddCount(sum.samples, result.samples);
    sum.loss += result.loss;
    sum.correct = AddCount(sum.correct, result.correct);
    sum.outputs += result.outputs;
  }
  return sum;
}

}  // namespace capstan::scheduler
