// Mutants: the system with one planted bug each, which the simulation must catch.
//
// Thread safety: a planted bug is the process's: one at a time.
#ifndef CAPSTAN_TESTS_SIMULATION_MUTANTS_H_
#define CAPSTAN_TESTS_SIMULATION_MUTANTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/planted/planted_bug.h"

namespace capstan::sim {

struct Mutant {
  PlantedBug bug = PlantedBug::kNone;
  absl::string_view name;
  // The checker that must catch it: the first words of its failures, up to the colon. What another
  // one says of the mutant does not count.
  absl::string_view caught_by;
  absl::string_view what;   // Goes wrong.
  uint64_t first_seed = 1;  // A hunt begins here: shortly before a seed that shows the mutant.
};

const std::vector<Mutant>& AllMutants();

// Plants the bug in this process; kNone removes it.
void Plant(PlantedBug bug);

struct MutantOptions {
  std::optional<uint64_t> first_seed;  // Nothing: each mutant's own.
  uint64_t seeds_max = 3000;           // Most seeds until it is caught.
  int jobs = 1;                        // Processes.
  std::string only;                    // The name of one mutant; empty: all.
};

// Runs each mutant on one seed after another until its checker fails, and prints which seed it was.
// The same seed must pass without the mutant: else the simulation has found a fault of the system.
// Returns the exit code: 0 if all were caught, and there was one.
int RunMutants(const MutantOptions& options);

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_MUTANTS_H_
