#include "scheduler/cli/diff/diff_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/tables.h"
#include "common/random/permutation.h"
#include "scheduler/cli/diff/job_differences.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

using What = RunDifference::What;
using Between = RunDifference::Between;
using Before = RunDifference::Before;

constexpr int kSamplesShown = 8;

const char* NameOf(What what) {
  switch (what) {
    case What::kParameters:
      return "parameters";
    case What::kSlots:
      return "slots";
    case What::kSamples:
      return "samples";
    case What::kKeys:
      return "keys";
    case What::kGradient:
      return "gradient";
  }
  return "";
}

const char* NameOf(Between between) {
  switch (between) {
    case Between::kRuns:
      return "runs";
    case Between::kFirstAlone:
      return "first";
    case Between::kSecondAlone:
      return "second";
  }
  return "";
}

std::string Hash(uint64_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }

// Returns the reason why parameters differ after the first iteration, if the jobs are the same.
std::string ReasonOfUpdate(const RunDifference& difference) {
  if (difference.before == Before::kUnrecorded) {
    return "not all that was pushed before is recorded in both runs: a worker died before it had "
           "reported it; what it pushed is the likely place";
  }
  return "all gradients of the iterations before are the same, so that the servers made something "
         "else of them: this is a fault of Capstan; please report it with both updates.csv";
}

std::string ReasonOfGradient(const std::optional<v1::JobSpec>& job) {
  std::string reason =
      "the same parameters and samples gave another gradient: what computes it is not "
      "deterministic there";
  if (job && job->has_program()) {
    absl::StrAppend(&reason, "; for PyTorch, capstan.torch.deterministic() sets what it needs");
  } else {
    absl::StrAppend(&reason, ", or its data or its kind of processor is another");
  }
  return reason;
}

// The file of initial values has no other effect than the first parameters.
template <typename Lines>
bool MayExplain(const Lines& lines, const RunDifference& difference) {
  if (difference.what == What::kParameters && difference.before == Before::kNothing) {
    return !lines.empty();
  }
  return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return !absl::StartsWith(line, "training.initial_weights:");
  });
}

std::string ReasonOf(const RunDifference& difference, const RunDiffOutput& output,
                     const std::optional<v1::JobSpec>& job) {
  if (difference.between != Between::kRuns) {
    return difference.what == What::kParameters
               ? "micro-batches of one iteration were computed with different parameters: this is "
                 "a fault of Capstan; please report it with updates.csv"
               : "a micro-batch was computed twice, after a worker had died, and differently: what "
                 "computes it is not deterministic there";
  }
  if (MayExplain(output.training_differences(), difference)) {
    return "the jobs differ in what is trained, see above";
  }
  switch (difference.what) {
    case What::kParameters:
      return difference.before == Before::kNothing ? "the runs begin with other parameters"
                                                   : ReasonOfUpdate(difference);
    case What::kSlots:
      return absl::StrCat("an iteration has ", difference.slots_first, " and ",
                          difference.slots_second, " micro-batches");
    case What::kSamples:
      return "the micro-batches have other samples";
    case What::kKeys:
      return "the same samples name other keys: the data, or the program that names them, is "
             "another";
    case What::kGradient:
      return ReasonOfGradient(job);
  }
  return "";
}

ComparedUpdate DescribeUpdate(const TableUpdate& update, const std::optional<v1::JobSpec>& job) {
  ComparedUpdate described;
  described.set_begin(update.positions.begin);
  described.set_end(update.positions.end);
  described.set_parameters(Hash(update.parameters));
  described.set_gradient(Hash(update.gradient));
  if (update.keys != 0) described.set_keys(Hash(update.keys));
  described.set_rank(update.rank);
  const int64_t samples = job && job->has_program() ? job->program().samples() : 0;
  if (update.positions.begin < 0 || update.positions.end > samples) return described;
  const std::vector<uint32_t> order =
      MakePermutation(EpochOrderKey(SeedOf(job->training()), update.epoch - 1), samples);
  for (int64_t position = update.positions.begin; position < update.positions.end; ++position) {
    described.add_samples(order[static_cast<size_t>(position)]);
  }
  return described;
}

ComparedRun DescribeRun(const RunOrigin& origin, const RunExtent& extent, int64_t unrecorded) {
  ComparedRun run;
  run.set_name(origin.name);
  run.set_first_iteration(extent.first_iteration);
  run.set_last_iteration(extent.last_iteration);
  run.set_micro_batches(extent.micro_batches);
  run.set_unrecorded(unrecorded);
  run.set_torn_lines(origin.torn_lines);
  return run;
}

std::string RunLine(absl::string_view which, const ComparedRun& run) {
  std::string line =
      absl::StrCat(which, run.name(), ": iterations ", run.first_iteration(), " to ",
                   run.last_iteration(), ", ", FormatCount(run.micro_batches()), " micro-batches");
  if (run.unrecorded() > 0) {
    absl::StrAppend(&line, "; ", FormatCount(run.unrecorded()),
                    " more were lost with workers that died");
  }
  if (run.torn_lines() > 0) {
    absl::StrAppend(&line, "; ", run.torn_lines(), " lines cannot be read");
  }
  return absl::StrCat(line, "\n");
}

template <typename Lines>
void AddLines(absl::string_view title, const Lines& lines, std::string& text) {
  if (lines.empty()) return;
  absl::StrAppend(&text, title, "\n  ", absl::StrJoin(lines, "\n  "), "\n");
}

std::string SamplesText(const ComparedUpdate& update) {
  if (update.begin() == update.end()) return "none";
  std::string text =
      absl::StrCat("positions ", update.begin(), " to ", update.end() - 1, " of the epoch's order");
  if (update.samples_size() == 0) return text;
  const auto begin = update.samples().begin();
  const int shown = std::min(kSamplesShown, update.samples_size());
  return absl::StrCat(text, ": ", absl::StrJoin(begin, begin + shown, ", "),
                      shown < update.samples_size() ? ", ..." : "");
}

// One value if both are the same, else both.
std::string Both(const std::string& first, const std::string& second) {
  return first == second ? first : absl::StrCat(first, " | ", second);
}

std::string DifferenceText(const RunDifferenceOutput& difference) {
  const ComparedUpdate& first = difference.first();
  const ComparedUpdate& second = difference.second();
  std::string text = absl::StrCat("different at iteration ", difference.iteration(), " (epoch ",
                                  difference.epoch(), ")");
  if (difference.what() == "slots") {
    return absl::StrCat(text, ": the number of slots\n", difference.reason(), "\n");
  }
  absl::StrAppend(&text, ", slot ", difference.slot(), ", table ", difference.table(), ": the ",
                  difference.what());
  if (difference.between() != "runs") {
    absl::StrAppend(&text, ", within the ", difference.between(), " run alone");
  }
  absl::StrAppend(&text, "\n  samples     ", Both(SamplesText(first), SamplesText(second)));
  if (!first.keys().empty() || !second.keys().empty()) {
    absl::StrAppend(&text, "\n  keys        ", Both(first.keys(), second.keys()));
  }
  absl::StrAppend(&text, "\n  parameters  ", Both(first.parameters(), second.parameters()),
                  "\n  gradient    ", Both(first.gradient(), second.gradient()), "\n  worker      ",
                  first.rank(), " | ", second.rank(), "\n", difference.reason(), "\n");
  return text;
}

}  // namespace

RunDiffOutput DescribeDiff(const RunOrigin& first, const RunOrigin& second,
                           const RunComparison& comparison) {
  RunDiffOutput output;
  output.set_equal(!comparison.difference.has_value());
  *output.mutable_first() = DescribeRun(first, comparison.first, comparison.unrecorded_first);
  *output.mutable_second() = DescribeRun(second, comparison.second, comparison.unrecorded_second);
  output.set_equal_iterations(comparison.equal_iterations);
  output.set_equal_micro_batches(comparison.equal_micro_batches);
  if (first.spec && second.spec) {
    JobDifferences jobs = CompareJobs(*first.spec, *second.spec);
    for (std::string& line : jobs.of_training) output.add_training_differences(std::move(line));
    for (std::string& line : jobs.others) output.add_other_differences(std::move(line));
  }
  if (!comparison.difference) return output;
  const RunDifference& difference = *comparison.difference;
  RunDifferenceOutput& described = *output.mutable_difference();
  described.set_what(NameOf(difference.what));
  described.set_between(NameOf(difference.between));
  described.set_iteration(difference.first.iteration);
  described.set_epoch(difference.first.epoch);
  described.set_slot(difference.first.slot);
  described.set_table(difference.table);
  const bool second_alone = difference.between == Between::kSecondAlone;
  const bool first_alone = difference.between == Between::kFirstAlone;
  const std::optional<v1::JobSpec>& first_job = second_alone ? second.spec : first.spec;
  *described.mutable_first() = DescribeUpdate(difference.first, first_job);
  *described.mutable_second() =
      DescribeUpdate(difference.second, first_alone ? first.spec : second.spec);
  described.set_reason(ReasonOf(difference, output, first_job));
  return output;
}

std::string DiffText(const RunDiffOutput& output) {
  std::string text =
      absl::StrCat(RunLine("first   ", output.first()), RunLine("second  ", output.second()));
  AddLines("the jobs differ in what is trained:", output.training_differences(), text);
  AddLines("the jobs differ in what must not matter:", output.other_differences(), text);
  if (!output.equal()) return absl::StrCat(text, DifferenceText(output.difference()));
  return absl::StrCat(text, "the same: ", FormatCount(output.equal_micro_batches()),
                      " micro-batches of ", FormatCount(output.equal_iterations()),
                      " iterations are equal, bit for bit\n");
}

}  // namespace capstan::cli
