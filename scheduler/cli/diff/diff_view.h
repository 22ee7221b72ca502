// Diff view: makes text of the comparison of two runs.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CLI_DIFF_DIFF_VIEW_H_
#define CAPSTAN_SCHEDULER_CLI_DIFF_DIFF_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>

#include "proto/job.pb.h"
#include "scheduler/cli/diff/compare_runs.h"
#include "scheduler/cli/view/output.pb.h"

namespace capstan::cli {

// The facts about a compared run that a RunComparison lacks.
struct RunOrigin {
  std::string name;
  std::optional<v1::JobSpec> spec;  // With all defaults. Empty: it is not known.
  int64_t torn_lines = 0;           // LoggedUpdates::torn_lines.
};

RunDiffOutput DescribeDiff(const RunOrigin& first, const RunOrigin& second,
                           const RunComparison& comparison);

// Returns the lines that `capstan diff` prints.
std::string DiffText(const RunDiffOutput& output);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_DIFF_DIFF_VIEW_H_
