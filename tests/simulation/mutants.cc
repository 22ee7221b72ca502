#include "tests/simulation/mutants.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "tests/simulation/options.h"
#include "tests/simulation/run_seed.h"

namespace capstan {
namespace {

PlantedBug planted = PlantedBug::kNone;

}  // namespace

bool PlantedBugIs(PlantedBug bug) { return planted == bug; }

namespace sim {
namespace {

// Prints the verdict. False: the mutant was not caught.
bool Hunt(const Mutant& mutant, const MutantOptions& options) {
  Plant(mutant.bug);
  for (uint64_t i = 0; i < options.seeds_max; ++i) {
    const SeedResult result = RunSeed(DrawOptions(options.first_seed + i), /*verbose=*/false);
    if (result.failure.empty()) continue;
    std::printf("caught after %4llu seeds: %-28.*s %.*s\n    %s\n",
                static_cast<unsigned long long>(i + 1), static_cast<int>(mutant.name.size()),
                mutant.name.data(), static_cast<int>(mutant.what.size()), mutant.what.data(),
                result.failure.substr(0, result.failure.find('\n')).c_str());
    return true;
  }
  std::printf("NOT CAUGHT by %llu seeds: %.*s: %.*s\n",
              static_cast<unsigned long long>(options.seeds_max),
              static_cast<int>(mutant.name.size()), mutant.name.data(),
              static_cast<int>(mutant.what.size()), mutant.what.data());
  return false;
}

}  // namespace

const std::vector<Mutant>& AllMutants() {
  static const std::vector<Mutant>* const mutants = new std::vector<Mutant>{
      {PlantedBug::kSkipOneIterationTooMany, "skip-one-iteration-too-many",
       "a task that is told where to go on leaves the first iteration out"},
      {PlantedBug::kRenumberRepeatedPush, "renumber-repeated-push",
       "a repeated push gets a new sequence number"},
      {PlantedBug::kReadBeforeOwnWrites, "read-before-own-writes",
       "a pull overtakes the task's own push"},
      {PlantedBug::kReportBeforeAcknowledged, "report-before-acknowledged",
       "samples are reported as trained once their push has started"},
      {PlantedBug::kForgetLeaseProgress, "forget-lease-progress",
       "a new assignment makes a task begin its leases anew"},
      {PlantedBug::kLoseLeaseOfTheDead, "lose-lease-of-the-dead",
       "the leases of a task that died go to nobody"},
      {PlantedBug::kReturnWholeLease, "return-whole-lease",
       "what a dead task had reported as done is leased again"},
      {PlantedBug::kTakeReportOfTheDead, "take-report-of-the-dead",
       "a report of an earlier life counts for the present one"},
      {PlantedBug::kKeepDeadMember, "keep-dead-member",
       "the next life of a task that died does not become a member"},
      {PlantedBug::kGrantBeforeServersKnow, "grant-before-servers-know",
       "a task gets work before every server waits for it"},
      {PlantedBug::kLoseLeasesOnRestart, "lose-leases-on-restart",
       "a scheduler that restarts takes held leases as done"},
      {PlantedBug::kForgetToStoreJob, "forget-to-store-job",
       "some of the scheduler's decisions never reach its store"},
      {PlantedBug::kReuseIncarnations, "reuse-incarnations",
       "a scheduler that restarts gives out incarnations again"},
  };
  return *mutants;
}

void Plant(PlantedBug bug) { planted = bug; }

int RunMutants(const MutantOptions& options) {
  const std::vector<Mutant>& mutants = AllMutants();
  std::fflush(stdout);
  for (int job = 0; job < options.jobs; ++job) {
    if (fork() != 0) continue;
    int missed = 0;
    for (size_t i = static_cast<size_t>(job); i < mutants.size();
         i += static_cast<size_t>(options.jobs)) {
      if (!options.only.empty() && mutants[i].name != options.only) continue;
      missed += !Hunt(mutants[i], options);
      std::fflush(stdout);
    }
    _Exit(missed == 0 ? 0 : 1);
  }
  int code = 0;
  for (int status = 0; wait(&status) > 0;) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) code = 1;
  }
  return code;
}

}  // namespace sim
}  // namespace capstan
