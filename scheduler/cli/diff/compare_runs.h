// CompareRuns: finds the first update at which two recorded runs of a job differ.
//
// BSP promises the same bits for any number of workers and servers, even if some of them die. So
// the records of two runs are equal, up to their order, unless the jobs or what they compute
// differ. In each iteration that both runs have, the function compares, in this order:
//
//   1. the records of one run with each other: tables of numbers have the same parameters in all
//      micro-batches, and a micro-batch that was computed twice has the same gradient
//   2. the parameters; those of rows only where the keys are the same
//   3. the samples, keys and gradients of each micro-batch
//
// Updates that one run has not recorded, because a worker died before it had reported them, are
// passed over: the parameters of the next iteration show their effect.
// Pure. Thread safety: a function of its arguments.
#ifndef CAPSTAN_SCHEDULER_CLI_DIFF_COMPARE_RUNS_H_
#define CAPSTAN_SCHEDULER_CLI_DIFF_COMPARE_RUNS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/report/update_log.h"

namespace capstan::cli {

struct RunDifference {
  enum class What { kParameters, kSlots, kSamples, kKeys, kGradient };
  enum class Between { kRuns, kFirstAlone, kSecondAlone };  // Alone: a run contradicts itself.
  // The comparison of the iteration before one whose parameters differ.
  enum class Before {
    kNothing,     // Neither run has an earlier iteration.
    kEqual,       // All of its micro-batches are equal.
    kUnrecorded,  // Some that may have led to the difference are not recorded by a run.
  };
  What what = What::kGradient;
  Between between = Between::kRuns;
  TableUpdate first = {}, second = {};  // The two that differ. kSlots: only iteration and epoch.
  std::string table = {};
  Before before = Before::kNothing;
  int32_t slots_first = 0, slots_second = 0;  // kSlots: micro-batches per iteration.
};

struct RunExtent {
  int64_t first_iteration = 0;
  int64_t last_iteration = 0;
  int64_t micro_batches = 0;  // Each counts once, however often it was computed.
};

struct RunComparison {
  RunExtent first = {}, second = {};
  // Up to the difference, or the end: iterations and micro-batches that both have and are equal.
  int64_t equal_iterations = 0;
  int64_t equal_micro_batches = 0;
  // Micro-batches that the first (second) run lacks and the other one has, in the compared part.
  int64_t unrecorded_first = 0, unrecorded_second = 0;
  std::optional<RunDifference> difference = {};  // Empty: what both have is equal.
};

// Errors: kInvalidArgument  a run has no update, or the runs have no common iteration or different
//                           tables.
absl::StatusOr<RunComparison> CompareRuns(LoggedUpdates first, LoggedUpdates second);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_DIFF_COMPARE_RUNS_H_
