// RunSeeds: many worlds in several processes, and what they have seen together.
//
// Each process runs every n-th seed; a process that crashes names the seed that it was running.
// Thread safety: forks; call it from a process with one thread.
#ifndef CAPSTAN_TESTS_SIMULATION_RUN_SEEDS_H_
#define CAPSTAN_TESTS_SIMULATION_RUN_SEEDS_H_

#include <cstdint>
#include <vector>

#include "tests/simulation/world/reached.h"

namespace capstan::sim {

struct SeedRange {
  uint64_t first = 1;
  uint64_t count = 0;
  int jobs = 1;                      // Processes.
  bool complete = true;              // Every fault must have been injected, every counter reached;
  std::vector<Reached> needed = {};  // else these at least.
};

// Prints failures as they come, each with the line that replays it, then the counts.
// Returns the exit code: 0 if every seed passed and no count that is needed is zero.
int RunSeeds(const SeedRange& range);

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_RUN_SEEDS_H_
