// Mutants: the system with one planted bug each, which the simulation must catch.
//
// Thread safety: a planted bug is the process's: one at a time.
#ifndef CAPSTAN_TESTS_SIMULATION_MUTANTS_H_
#define CAPSTAN_TESTS_SIMULATION_MUTANTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/planted/planted_bug.h"

namespace capstan::sim {

struct Mutant {
  PlantedBug bug = PlantedBug::kNone;
  absl::string_view name;
  absl::string_view what;  // Goes wrong.
};

const std::vector<Mutant>& AllMutants();

// From now on, in this process; kNone: none.
void Plant(PlantedBug bug);

struct MutantOptions {
  uint64_t first_seed = 1;
  uint64_t seeds_max = 3000;  // Until which it must be caught.
  int jobs = 1;               // Processes.
  std::string only;           // The name of one mutant; empty: all.
};

// Runs each mutant on one seed after another until one fails, and prints how many that took.
// Returns the exit code: 0 if all were caught, and there was one.
int RunMutants(const MutantOptions& options);

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_MUTANTS_H_
