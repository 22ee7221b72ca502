#include "scheduler/cli/diff/diff_view.h"

#include <catch2/catch.hpp>
#include <string>

#include "common/random/permutation.h"

namespace capstan::cli::diff_view_test {
namespace {

using What = RunDifference::What;
using Between = RunDifference::Between;
using Before = RunDifference::Before;

RunOrigin Origin(const std::string& name, uint64_t seed = 1) {
  v1::JobSpec spec;
  spec.mutable_training()->set_seed(seed);
  spec.mutable_program()->set_samples(64);
  return {.name = name, .spec = spec};
}

RunComparison SameRuns() {
  return {.first = {.first_iteration = 0, .last_iteration = 468, .micro_batches = 938},
          .second = {.first_iteration = 0, .last_iteration = 400, .micro_batches = 799},
          .equal_iterations = 401,
          .equal_micro_batches = 1799,
          .unrecorded_first = 0,
          .unrecorded_second = 3,
          .difference = {}};
}

RunComparison RunsThatDifferIn(What what) {
  RunComparison comparison = SameRuns();
  RunDifference difference{.what = what, .table = "parameters"};
  difference.first = {.iteration = 5,
                      .epoch = 1,
                      .slot = 1,
                      .positions = {.begin = 16, .end = 32},
                      .parameters = 0xa1,
                      .gradient = 0xb1,
                      .rank = 0};
  difference.second = difference.first;
  difference.second.rank = 2;
  if (what == What::kParameters) difference.second.parameters = 0xa2;
  if (what == What::kGradient) difference.second.gradient = 0xb2;
  comparison.difference = difference;
  return comparison;
}

std::string TextOf(const RunComparison& comparison, const RunOrigin& first = Origin("lenet-1"),
                   const RunOrigin& second = Origin("./b")) {
  return DiffText(DescribeDiff(first, second, comparison));
}

std::string ReasonOf(const RunComparison& comparison, const RunOrigin& second = Origin("./b")) {
  return DescribeDiff(Origin("lenet-1"), second, comparison).difference().reason();
}

TEST_CASE("Diff view: runs without a difference are the same, as far as both go", "[cli]") {
  CHECK(TextOf(SameRuns()) ==
        "first   lenet-1: iterations 0 to 468, 938 micro-batches\n"
        "second  ./b: iterations 0 to 400, 799 micro-batches; 3 more were lost with workers that "
        "died\n"
        "the same: 1,799 micro-batches of 401 iterations are equal, bit for bit\n");
}

TEST_CASE("Diff view: a gradient that differs is named with its samples and hashes", "[cli]") {
  const std::string text = TextOf(RunsThatDifferIn(What::kGradient));
  const auto order = MakePermutation(EpochOrderKey(1, 0), 64);
  CHECK_THAT(text, Catch::Contains("different at iteration 5 (epoch 1), slot 1, table parameters: "
                                   "the gradient\n"
                                   "  samples     positions 16 to 31 of the epoch's order: " +
                                   std::to_string(order[16]) + ", " + std::to_string(order[17])));
  CHECK_THAT(text, Catch::Contains(", ...\n"
                                   "  parameters  00000000000000a1\n"
                                   "  gradient    00000000000000b1 | 00000000000000b2\n"
                                   "  worker      0 | 2\n"
                                   "the same parameters and samples gave another gradient"));
  CHECK_THAT(text, Catch::EndsWith("capstan.torch.deterministic() sets what it needs\n"));
}

TEST_CASE("Diff view: jobs that differ in what is trained explain what differs", "[cli]") {
  const std::string text =
      TextOf(RunsThatDifferIn(What::kParameters), Origin("lenet-1", 1), Origin("./b", 2));
  CHECK_THAT(text, Catch::Contains("the jobs differ in what is trained:\n"
                                   "  training.seed: 1 -> 2\n"
                                   "different at iteration 5"));
  CHECK_THAT(text, Catch::EndsWith("the jobs differ in what is trained, see above\n"));
}

TEST_CASE("Diff view: another file of initial values explains only the first parameters", "[cli]") {
  RunOrigin other = Origin("./b");
  other.spec->mutable_training()->set_initial_weights("/w");
  RunComparison comparison = RunsThatDifferIn(What::kParameters);
  CHECK(ReasonOf(comparison, other) == "the jobs differ in what is trained, see above");
  comparison.difference->before = Before::kEqual;
  CHECK_THAT(ReasonOf(comparison, other), Catch::Contains("fault of Capstan"));
}

TEST_CASE("Diff view: the reason follows from what differs first", "[cli]") {
  RunComparison parameters = RunsThatDifferIn(What::kParameters);
  CHECK(ReasonOf(parameters) == "the runs begin with other parameters");
  parameters.difference->before = Before::kUnrecorded;
  CHECK_THAT(ReasonOf(parameters), Catch::StartsWith("not all that was pushed before"));
  CHECK_THAT(ReasonOf(RunsThatDifferIn(What::kSamples)), Catch::Contains("other samples"));
  CHECK_THAT(ReasonOf(RunsThatDifferIn(What::kKeys)), Catch::Contains("other keys"));
  RunComparison slots = RunsThatDifferIn(What::kSlots);
  slots.difference->slots_first = 2;
  slots.difference->slots_second = 4;
  CHECK(ReasonOf(slots) == "an iteration has 2 and 4 micro-batches");
  CHECK_THAT(TextOf(slots), Catch::Contains("(epoch 1): the number of slots\nan iteration has"));
}

TEST_CASE("Diff view: a run that contradicts itself is told apart", "[cli]") {
  RunComparison comparison = RunsThatDifferIn(What::kGradient);
  comparison.difference->between = Between::kSecondAlone;
  CHECK_THAT(TextOf(comparison), Catch::Contains("the gradient, within the second run alone\n"));
  CHECK_THAT(ReasonOf(comparison), Catch::StartsWith("a micro-batch was computed twice"));
  comparison.difference->what = What::kParameters;
  CHECK_THAT(ReasonOf(comparison), Catch::StartsWith("micro-batches of one iteration"));
}

TEST_CASE("Diff view: without job.json the jobs are not compared", "[cli]") {
  RunOrigin unknown = Origin("./b", 2);
  unknown.spec.reset();
  unknown.torn_lines = 2;
  const std::string text = TextOf(RunsThatDifferIn(What::kGradient), Origin("lenet-1"), unknown);
  CHECK_THAT(text,
             !Catch::Contains("the jobs differ") && Catch::Contains("2 lines cannot be read"));
}

}  // namespace
}  // namespace capstan::cli::diff_view_test
