// RunSeed: one simulated world from its seed to its verdict.
//
// Thread safety: a pure function of its arguments; several may run at once, each on its thread.
#ifndef CAPSTAN_TESTS_SIMULATION_RUN_SEED_H_
#define CAPSTAN_TESTS_SIMULATION_RUN_SEED_H_

#include <cstdint>
#include <string>

#include "tests/simulation/network/fault.h"
#include "tests/simulation/world/options.h"
#include "tests/simulation/world/reached.h"

namespace capstan::sim {

struct SeedResult {
  std::string failure;  // Empty: every promise held.
  uint64_t trace_hash = 0;
  FaultCounts faults;
  ReachedCounts reached;
  int64_t events = 0;
  int64_t calls = 0;
};

SeedResult RunSeed(const Options& options, bool verbose);

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_RUN_SEED_H_
