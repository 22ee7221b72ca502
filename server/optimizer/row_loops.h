// RowLoops: updates rows of a sparse table, which are not contiguous in memory.
//
//   row = weights [dim], then state: one array of [dim] for each slot of the rule, or one float
//
// The rules are those of README.md with two differences: a row that an update does not name stays
// as it is (no decay, no momentum), and Adam counts the updates of each row, as does a rule of a
// plugin that asks for it. The same bits for every instruction set, as in update_loops.h.
// Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_OPTIMIZER_ROW_LOOPS_H_
#define CAPSTAN_SERVER_OPTIMIZER_ROW_LOOPS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/types/instruction_set.h"
#include "common/types/unaligned_float.h"
#include "server/optimizer/config/optimizer_config.h"

namespace capstan::server {

// Floats of state behind a row's weights.
int64_t StateFloats(const OptimizerConfig& rule, int64_t dim);

// Returns whether a row counts its updates.
bool CountsUpdates(const OptimizerConfig& rule);

struct RowUpdates {
  int64_t dim = 0;                            // >= 1.
  absl::Span<float* const> rows;              // Weights, behind them the state.
  const UnalignedFloat* gradients = nullptr;  // [rows, dim], apart from the rows.
  // If CountsUpdates(): the updates of each row, including this one; >= 1.
  absl::Span<const uint32_t> counts;
};

// Applies one update; `step` (from 0) is that of the schedule. REQUIRES: IsSupported(set);
// !IsLayerWise(rule); the rows differ.
void ApplyRows(InstructionSet set, const OptimizerConfig& rule, int64_t step,
               const RowUpdates& updates);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_ROW_LOOPS_H_
