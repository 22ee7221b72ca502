// Faults of what lies beside the servers' disks: the scheduler's store and the checkpoint disk; and
// faults that are aimed at checkpoints and at the model's end.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_TESTS_SIMULATION_WORLD_OPTIONS_STORES_H_
#define CAPSTAN_TESTS_SIMULATION_WORLD_OPTIONS_STORES_H_

#include <string>

#include "tests/simulation/world/options.h"

namespace capstan::sim {

// `options` has all that is drawn before.
void DrawStores(Options& options);
// Whether the scheduler goes on from an older copy of its store. `options` is drawn to the end.
void DrawPutBack(Options& options);
std::string DescribeStores(const ChaosOptions& chaos);  // Part of a line for people.

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_WORLD_OPTIONS_STORES_H_
