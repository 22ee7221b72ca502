#include "scheduler/cli/diff/compare_runs.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace capstan::cli {
namespace {

using Updates = absl::Span<const TableUpdate>;
using What = RunDifference::What;
using Between = RunDifference::Between;

// One run's records, ordered by iteration, slot and table. Tables are numbered by the order of
// their names, which both runs share.
struct SortedRun {
  std::vector<TableUpdate> updates;
  RunExtent extent;
  int32_t slots = 0;
};

bool SameMicroBatch(const TableUpdate& a, const TableUpdate& b) {
  return a.iteration == b.iteration && a.slot == b.slot;
}

// Return the index of the first element after `begin` that is of another iteration, or micro-batch.
size_t EndOfIteration(Updates updates, size_t begin) {
  size_t end = begin;
  while (end < updates.size() && updates[end].iteration == updates[begin].iteration) ++end;
  return end;
}

size_t EndOfMicroBatch(Updates updates, size_t begin) {
  size_t end = begin;
  while (end < updates.size() && SameMicroBatch(updates[end], updates[begin])) ++end;
  return end;
}

int64_t MicroBatchesIn(Updates updates) {
  int64_t count = 0;
  for (size_t i = 0; i < updates.size(); i = EndOfMicroBatch(updates, i)) ++count;
  return count;
}

// Null: there is none.
const TableUpdate* FindTable(Updates updates, int32_t table) {
  const auto* const found = std::find_if(updates.begin(), updates.end(),
                                         [table](const auto& u) { return u.table == table; });
  return found == updates.end() ? nullptr : &*found;
}

absl::StatusOr<SortedRun> Sorted(LoggedUpdates run, const std::vector<std::string>& names,
                                 absl::string_view which) {
  if (run.updates.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the ", which, " run has no update yet"));
  }
  std::vector<std::string> own = run.table_names;
  std::sort(own.begin(), own.end());
  if (own != names) {
    return absl::InvalidArgumentError(
        absl::StrCat("the runs have the tables ", absl::StrJoin(names, ", "), " and ",
                     absl::StrJoin(own, ", "), ", expected those of one model"));
  }
  SortedRun sorted;
  for (TableUpdate& update : run.updates) {
    const std::string& name = run.table_names[static_cast<size_t>(update.table)];
    update.table =
        static_cast<int32_t>(std::lower_bound(names.begin(), names.end(), name) - names.begin());
    sorted.slots = std::max(sorted.slots, update.slot + 1);
  }
  const auto key = [](const TableUpdate& u) { return std::tuple(u.iteration, u.slot, u.table); };
  std::stable_sort(run.updates.begin(), run.updates.end(),
                   [&key](const auto& a, const auto& b) { return key(a) < key(b); });
  sorted.updates = std::move(run.updates);
  sorted.extent = {.first_iteration = sorted.updates.front().iteration,
                   .last_iteration = sorted.updates.back().iteration,
                   .micro_batches = MicroBatchesIn(sorted.updates)};
  return sorted;
}

class Comparison {
 public:
  Comparison(SortedRun first, SortedRun second, std::vector<std::string> names)
      : first_(std::move(first)), second_(std::move(second)), names_(std::move(names)) {
    of_rows_.resize(names_.size());
    for (const SortedRun* run : {&first_, &second_}) {
      for (const TableUpdate& update : run->updates) {
        if (update.keys != 0) of_rows_[static_cast<size_t>(update.table)] = true;
      }
    }
  }

  absl::StatusOr<RunComparison> Run() {
    result_.first = first_.extent;
    result_.second = second_.extent;
    const Updates a = first_.updates;
    const Updates b = second_.updates;
    for (size_t i = 0, j = 0; i < a.size() && j < b.size() && !result_.difference;) {
      const size_t i_end = EndOfIteration(a, i);
      const size_t j_end = EndOfIteration(b, j);
      const Updates here_a = a.subspan(i, i_end - i);
      const Updates here_b = b.subspan(j, j_end - j);
      if (a[i].iteration == b[j].iteration) CompareIteration(here_a, here_b);
      if (a[i].iteration < b[j].iteration && j > 0) NoteUnrecorded(here_a, second_unrecorded_);
      if (b[j].iteration < a[i].iteration && i > 0) NoteUnrecorded(here_b, first_unrecorded_);
      const bool first_too = a[i].iteration <= b[j].iteration;
      const bool second_too = b[j].iteration <= a[i].iteration;
      if (first_too) i = i_end;
      if (second_too) j = j_end;
    }
    result_.unrecorded_first = first_unrecorded_.total;
    result_.unrecorded_second = second_unrecorded_.total;
    if (result_.equal_iterations > 0 || result_.difference) return result_;
    return absl::InvalidArgumentError(absl::StrCat(
        "the runs have no iteration in common: the first has ", first_.extent.first_iteration,
        " to ", first_.extent.last_iteration, ", the second ", second_.extent.first_iteration,
        " to ", second_.extent.last_iteration));
  }

 private:
  struct Unrecorded {
    int64_t total = 0;
    int64_t last_iteration = -1;
  };

  static void NoteUnrecorded(Updates recorded, Unrecorded& in) {
    in.total += MicroBatchesIn(recorded);
    in.last_iteration = recorded.front().iteration;
  }

  bool IsOfRows(const TableUpdate& update) const {
    return of_rows_[static_cast<size_t>(update.table)];
  }

  void Differ(What what, Between between, const TableUpdate& a, const TableUpdate& b) {
    if (result_.difference) return;
    result_.difference = RunDifference{.what = what,
                                       .between = between,
                                       .first = a,
                                       .second = b,
                                       .table = names_[static_cast<size_t>(a.table)]};
    if (what == What::kParameters && between == Between::kRuns) {
      result_.difference->before = KnownBefore(a);
    }
  }

  // Returns what is known of the updates that led to the parameters of `update`. Any earlier
  // iteration may have been the last one that changed a row.
  RunDifference::Before KnownBefore(const TableUpdate& update) const {
    using Before = RunDifference::Before;
    if (result_.equal_iterations == 0) return Before::kNothing;
    const int64_t before = update.iteration - 1;
    const int64_t lacking =
        std::max(first_unrecorded_.last_iteration, second_unrecorded_.last_iteration);
    if (last_equal_ != before || lacking == before) return Before::kUnrecorded;
    return IsOfRows(update) && lacking >= 0 ? Before::kUnrecorded : Before::kEqual;
  }

  void CompareIteration(Updates a, Updates b) {
    CheckAlone(a, Between::kFirstAlone);
    CheckAlone(b, Between::kSecondAlone);
    CompareParameters(a, b);
    if (first_.slots != second_.slots && result_.equal_iterations == 0) {
      Differ(What::kSlots, Between::kRuns, a.front(), b.front());
      result_.difference->slots_first = first_.slots;
      result_.difference->slots_second = second_.slots;
    }
    const int64_t equal = CompareMicroBatches(a, b);
    if (result_.difference) return;
    ++result_.equal_iterations;
    result_.equal_micro_batches += equal;
    last_equal_ = a.front().iteration;
  }

  // The records of one run in one iteration.
  void CheckAlone(Updates updates, Between run) {
    for (const TableUpdate& update : updates) {
      const TableUpdate& any = *FindTable(updates, update.table);
      if (!IsOfRows(update) && update.parameters != any.parameters) {
        Differ(What::kParameters, run, any, update);
      }
    }
    for (size_t i = 1; i < updates.size(); ++i) {
      const TableUpdate& before = updates[i - 1];
      if (SameMicroBatch(before, updates[i]) && before.table == updates[i].table) {
        CompareTable(before, updates[i], run);
      }
    }
  }

  // Tables of numbers: the first record of each stands for its run.
  void CompareParameters(Updates a, Updates b) {
    for (int32_t table = 0; table < static_cast<int32_t>(names_.size()); ++table) {
      const TableUpdate* const mine = FindTable(a, table);
      const TableUpdate* const other = FindTable(b, table);
      if (mine == nullptr || other == nullptr || IsOfRows(*mine)) continue;
      if (mine->parameters != other->parameters) {
        Differ(What::kParameters, Between::kRuns, *mine, *other);
      }
    }
  }

  // Returns the number of micro-batches that both runs have.
  int64_t CompareMicroBatches(Updates a, Updates b) {
    int64_t both = 0;
    for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
      const bool first_too = j == b.size() || (i < a.size() && a[i].slot <= b[j].slot);
      const bool second_too = i == a.size() || (j < b.size() && b[j].slot <= a[i].slot);
      const size_t i_end = first_too ? EndOfMicroBatch(a, i) : i;
      const size_t j_end = second_too ? EndOfMicroBatch(b, j) : j;
      if (first_too && second_too) {
        ++both;
        CompareMicroBatch(a.subspan(i, i_end - i), b.subspan(j, j_end - j));
      } else if (first_too) {
        NoteUnrecorded(a.subspan(i, i_end - i), second_unrecorded_);
      } else {
        NoteUnrecorded(b.subspan(j, j_end - j), first_unrecorded_);
      }
      i = i_end;
      j = j_end;
    }
    return both;
  }

  void CompareMicroBatch(Updates a, Updates b) {
    for (const TableUpdate& update : a) {
      const TableUpdate* const other = FindTable(b, update.table);
      if (other != nullptr) CompareTable(update, *other, Between::kRuns);
    }
  }

  void CompareTable(const TableUpdate& a, const TableUpdate& b, Between between) {
    if (a.epoch != b.epoch || a.positions != b.positions) Differ(What::kSamples, between, a, b);
    if (a.keys != b.keys) Differ(What::kKeys, between, a, b);
    if (a.parameters != b.parameters) Differ(What::kParameters, between, a, b);
    if (a.gradient != b.gradient) Differ(What::kGradient, between, a, b);
  }

  const SortedRun first_, second_;
  const std::vector<std::string> names_;
  std::vector<bool> of_rows_;  // By table.
  RunComparison result_;
  Unrecorded first_unrecorded_, second_unrecorded_;
  int64_t last_equal_ = -1;  // The last iteration that was equal.
};

}  // namespace

absl::StatusOr<RunComparison> CompareRuns(LoggedUpdates first, LoggedUpdates second) {
  std::vector<std::string> names = first.table_names;
  std::sort(names.begin(), names.end());
  absl::StatusOr<SortedRun> sorted_first = Sorted(std::move(first), names, "first");
  if (!sorted_first.ok()) return sorted_first.status();
  absl::StatusOr<SortedRun> sorted_second = Sorted(std::move(second), names, "second");
  if (!sorted_second.ok()) return sorted_second.status();
  return Comparison(*std::move(sorted_first), *std::move(sorted_second), std::move(names)).Run();
}

}  // namespace capstan::cli
