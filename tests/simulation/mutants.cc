#include "tests/simulation/mutants.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "absl/container/btree_map.h"
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

// Hunts the mutant in a process of its own: a planted bug may well crash.
pid_t StartHunt(const Mutant& mutant, const MutantOptions& options) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child != 0) return child;
  const bool caught = Hunt(mutant, options);
  std::fflush(stdout);
  _Exit(caught ? 0 : 1);
}

std::vector<Mutant> MutantsOfWorkersAndScheduler() {
  return {
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
      {PlantedBug::kBeginWhilePaused, "begin-while-paused",
       "a task that has said it is idle begins the batch that it had planned"},
      {PlantedBug::kKeepStaleRow, "keep-stale-row",
       "a task goes on using a row that it has kept, however old it is"},
      {PlantedBug::kKeepRowsOfOldMembers, "keep-rows-of-old-members",
       "a task keeps its rows when a worker comes in that begins before them"},
      {PlantedBug::kLoseLeaseOfTheDead, "lose-lease-of-the-dead",
       "the leases of a task that died go to nobody"},
      {PlantedBug::kReturnWholeLease, "return-whole-lease",
       "what a dead task had reported as done is leased again"},
      {PlantedBug::kLosePartlyEvaluated, "lose-partly-evaluated",
       "what a dead task had evaluated of a lease counts for nobody"},
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
      {PlantedBug::kTakeBusyForHung, "take-busy-for-hung",
       "a task that prepares or exports for long is ended, however it gets on"},
      {PlantedBug::kExportUnstaged, "export-unstaged",
       "a task writes the model where users look for it, also when it was taken for dead"},
      {PlantedBug::kMissServersWhileMoving, "miss-servers-while-moving",
       "a job fails, or goes back, for servers that die when its model is whole"},
  };
}

std::vector<Mutant> MutantsOfServers() {
  return {
      {PlantedBug::kSkipDuplicateFilter, "skip-duplicate-filter",
       "a server applies a repeated push once more"},
      {PlantedBug::kAcceptOldIncarnation, "accept-old-incarnation",
       "a server takes pushes of a life that was fenced off"},
      {PlantedBug::kStalenessOffByOne, "staleness-off-by-one",
       "a read may be one iteration staler than the bound"},
      {PlantedBug::kReleaseBarrierEarly, "release-barrier-early",
       "an iteration is applied without its last slot"},
      {PlantedBug::kReadCurrentForPrevious, "read-current-for-previous",
       "a reader of the version before gets the present one"},
      {PlantedBug::kIgnoreMembership, "ignore-membership", "a server takes in no membership"},
      {PlantedBug::kForgetChangedRow, "forget-changed-row",
       "a row that was read from disk and then updated is not written back"},
      {PlantedBug::kTakeInOldBody, "take-in-old-body",
       "a body that was read ahead takes the place of what a push made of it meanwhile"},
      {PlantedBug::kForgetPinnedRow, "forget-pinned-row",
       "a checkpoint that is being written has rows as they became meanwhile"},
      {PlantedBug::kReadPresentForPinned, "read-present-for-pinned",
       "a reader of a snapshot gets rows by key as they are now"},
      {PlantedBug::kAcknowledgeBeforeReplica, "acknowledge-before-replica",
       "a push is acknowledged before the replicas have it"},
      {PlantedBug::kPromoteStaleReplica, "promote-stale-replica",
       "a replica that is still being filled becomes primary"},
      {PlantedBug::kAcceptOldTerm, "accept-old-term",
       "a replica takes in what a deposed primary sends"},
      {PlantedBug::kInstallWithoutMarks, "install-without-marks",
       "a copied shard has lost which pushes it has applied"},
      {PlantedBug::kInstallWithoutOptimizerState, "install-without-optimizer-state",
       "a copied shard has a wrong optimizer state"},
      {PlantedBug::kInstallWithoutRowLife, "install-without-row-life",
       "a copied bucket has lost how often keys were pushed that have no row"},
      {PlantedBug::kReadWithoutLease, "read-without-lease",
       "a primary that was cut off goes on answering reads"},
      {PlantedBug::kDropFsync, "drop-fsync", "the log calls durable what was never synced"},
      {PlantedBug::kAcknowledgeBeforeLogged, "acknowledge-before-logged",
       "a push is acknowledged before the log has it"},
      {PlantedBug::kIgnoreChecksum, "ignore-checksum", "the log believes bytes that have changed"},
  };
}

}  // namespace

const std::vector<Mutant>& AllMutants() {
  static const std::vector<Mutant>* const mutants = [] {
    auto* all = new std::vector<Mutant>(MutantsOfWorkersAndScheduler());
    for (const Mutant& mutant : MutantsOfServers()) all->push_back(mutant);
    return all;
  }();
  return *mutants;
}

void Plant(PlantedBug bug) { planted = bug; }

int RunMutants(const MutantOptions& options) {
  int missed = 0;
  bool known = false;  // What is to be run.
  absl::btree_map<pid_t, const Mutant*> running;
  const auto finish_one = [&] {
    int status = 0;
    const auto ended = running.find(wait(&status));
    if (ended == running.end()) return;
    if (WIFSIGNALED(status)) {
      std::printf("caught by a crash:   %.*s\n", static_cast<int>(ended->second->name.size()),
                  ended->second->name.data());
    } else if (WEXITSTATUS(status) != 0) {
      ++missed;
    }
    running.erase(ended);
  };
  for (const Mutant& mutant : AllMutants()) {
    if (!options.only.empty() && mutant.name != options.only) continue;
    known = true;
    if (running.size() >= static_cast<size_t>(options.jobs)) finish_one();
    running[StartHunt(mutant, options)] = &mutant;
  }
  while (!running.empty()) finish_one();
  if (!known) {
    std::printf("no mutant has the name %s\n", options.only.c_str());
    return 1;
  }
  std::printf("%d mutants were not caught\n", missed);
  return missed == 0 ? 0 : 1;
}

}  // namespace sim
}  // namespace capstan
