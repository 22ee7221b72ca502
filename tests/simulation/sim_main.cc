// The simulator: runs seeds, or prints the events of one.
//
//   bazel run //tests/simulation:sim -- --seeds=10000 [--first-seed=N] [--jobs=2]
//   bazel run //tests/simulation:sim -- --seed=123 [--verbose] [--mutant=NAME]
//   bazel run //tests/simulation:sim -- --mutants [--mutant=NAME]
#include <cstdio>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "common/observability/log.h"
#include "tests/simulation/mutants.h"
#include "tests/simulation/run_seed.h"
#include "tests/simulation/run_seeds.h"
#include "tests/simulation/world/options.h"

namespace capstan::sim {
namespace {

int RunOne(uint64_t seed, bool verbose) {
  const Options options = DrawOptions(seed);
  std::printf("%s\n", Describe(options).c_str());
  const SeedResult result = RunSeed(options, verbose);
  std::printf("%lld events, %lld calls\ntrace hash %016llx\n",
              static_cast<long long>(result.events), static_cast<long long>(result.calls),
              static_cast<unsigned long long>(result.trace_hash));
  std::printf("%s\n", result.failure.empty() ? "every promise held"
                                             : absl::StrCat("FAILED: ", result.failure).c_str());
  return result.failure.empty() ? 0 : 1;
}

}  // namespace
}  // namespace capstan::sim

int main(int argc, char** argv) {
  capstan::Program program("Runs the cluster in virtual time under faults, one world a seed.");
  uint64_t seed = 0;
  std::optional<uint64_t> first_seed;
  uint64_t seeds = 0;
  int jobs = 2;
  bool verbose = false;
  bool mutants = false;
  std::string mutant;
  program.AddOption("--seed", seed, "Run this seed alone and print its trace hash.");
  program.AddFlag("--verbose", verbose, "With --seed: print its events.");
  program.AddOption("--seeds", seeds, "Run so many seeds.");
  program.AddOption("--first-seed", first_seed,
                    "The first of them; without it one that nobody chose.");
  program.AddOption("--jobs", jobs, "Processes to run them in.").Between(1, 64);
  program.AddFlag("--mutants", mutants, "Run each planted bug until it is caught.");
  program.AddOption("--mutant", mutant, "With --mutants: this one alone. Else: plant it.");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  capstan::InitLogging(
      {.role = "sim", .level = verbose ? capstan::LogLevel::kDebug : capstan::LogLevel::kError});
  if (mutants) {
    return capstan::sim::RunMutants({.first_seed = first_seed,
                                     .seeds_max = seeds > 0 ? seeds : 3000,
                                     .jobs = jobs,
                                     .only = mutant});
  }
  for (const capstan::sim::Mutant& known : capstan::sim::AllMutants()) {
    if (known.name == mutant) capstan::sim::Plant(known.bug);
  }
  if (seeds == 0) return capstan::sim::RunOne(seed, verbose);
  // Seeds that were run before show what was mended, not what is wrong.
  const uint64_t first = first_seed.value_or(std::random_device()());
  if (!first_seed) std::printf("--first-seed=%llu\n", static_cast<unsigned long long>(first));
  return capstan::sim::RunSeeds({.first = first, .count = seeds, .jobs = jobs});
}
