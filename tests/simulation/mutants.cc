#include "tests/simulation/mutants.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/simulation/run_seed.h"
#include "tests/simulation/world/options.h"

namespace capstan {
namespace {

PlantedBug planted = PlantedBug::kNone;

}  // namespace

bool PlantedBugIs(PlantedBug bug) { return planted == bug; }

namespace sim {
namespace {

absl::string_view CheckerOf(const std::string& failure) {
  return absl::string_view(failure).substr(0, failure.find(':'));
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

void Print(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

// The mutant is planted, and `seed` has failed with `failure`. Prints whether that counts.
bool IsCaught(const Mutant& mutant, uint64_t seed, const std::string& failure) {
  Plant(PlantedBug::kNone);
  const SeedResult control = RunSeed(DrawOptions(seed), /*verbose=*/false);
  Plant(mutant.bug);
  if (!control.failure.empty()) {
    Print(absl::StrCat("seed ", seed, " fails without ", mutant.name, ": ",
                       FirstLine(control.failure)));
    return false;
  }
  Print(absl::StrCat("caught: ", mutant.name, " (", mutant.what, ") by seed ", seed, "\n    ",
                     FirstLine(failure)));
  return true;
}

// Prints the verdict. False: the mutant was not caught.
bool Hunt(const Mutant& mutant, const MutantOptions& options) {
  Plant(mutant.bug);
  std::map<std::string, std::string> others;  // The first failure of each other checker.
  const uint64_t first = options.first_seed.value_or(mutant.first_seed);
  for (uint64_t seed = first; seed < first + options.seeds_max; ++seed) {
    const SeedResult result = RunSeed(DrawOptions(seed), /*verbose=*/false);
    if (result.failure.empty()) continue;
    if (CheckerOf(result.failure) == mutant.caught_by) {
      return IsCaught(mutant, seed, result.failure);
    }
    others.try_emplace(std::string(CheckerOf(result.failure)),
                       absl::StrCat("seed ", seed, ": ", FirstLine(result.failure)));
  }
  std::string verdict = absl::StrCat("NOT CAUGHT by ", options.seeds_max, " seeds: ", mutant.name,
                                     " (", mutant.what, "), expected ", mutant.caught_by);
  for (const auto& [checker, failure] : others) absl::StrAppend(&verdict, "\n    but ", failure);
  Print(verdict);
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
      {PlantedBug::kSkipOneIterationTooMany, "skip-one-iteration-too-many", "liveness",
       "a task that is told where to go on leaves the first iteration out", 56},
      {PlantedBug::kRenumberRepeatedPush, "renumber-repeated-push", "exactly once",
       "a repeated push gets a new sequence number"},
      {PlantedBug::kReadBeforeOwnWrites, "read-before-own-writes", "versions",
       "a pull overtakes the task's own push"},
      {PlantedBug::kGiveUpOnTransportError, "give-up-on-transport-error", "liveness",
       "a call that gRPC lost with UNKNOWN or INTERNAL is taken for answered so", 32},
      {PlantedBug::kReportBeforeAcknowledged, "report-before-acknowledged", "leases",
       "samples are reported as trained once their push has started"},
      {PlantedBug::kForgetLeaseProgress, "forget-lease-progress", "leases",
       "a new assignment makes a task begin its leases anew"},
      {PlantedBug::kBeginWhilePaused, "begin-while-paused", "quiet moment",
       "a task that has said it is idle begins the batch that it had planned", 717},
      {PlantedBug::kKeepStaleRow, "keep-stale-row", "staleness",
       "a task goes on using a row that it has kept, however old it is", 6},
      {PlantedBug::kKeepRowTooLong, "keep-row-too-long", "staleness",
       "a task goes on using a row for one iteration more than it may", 6},
      {PlantedBug::kKeepRowsOfOldMembers, "keep-rows-of-old-members", "staleness",
       "a task keeps its rows when a worker comes in that begins before them", 2708},
      {PlantedBug::kLoseLeaseOfTheDead, "lose-lease-of-the-dead", "leases",
       "the leases of a task that died go to nobody"},
      {PlantedBug::kReturnWholeLease, "return-whole-lease", "leases",
       "what a dead task had reported as done is leased again"},
      {PlantedBug::kLosePartlyEvaluated, "lose-partly-evaluated", "evaluation",
       "what a dead task had evaluated of a lease counts for nobody", 342},
      {PlantedBug::kTakeReportOfTheDead, "take-report-of-the-dead", "leases",
       "a report of an earlier incarnation counts for the present one", 281},
      {PlantedBug::kKeepDeadMember, "keep-dead-member", "liveness",
       "the next incarnation of a task that died does not become a member"},
      {PlantedBug::kGrantBeforeServersKnow, "grant-before-servers-know", "staleness",
       "a task gets work before every server waits for it", 717},
      {PlantedBug::kLoseLeasesOnRestart, "lose-leases-on-restart", "leases",
       "a scheduler that restarts takes held leases as done"},
      {PlantedBug::kForgetToStoreJob, "forget-to-store-job", "liveness",
       "some of the scheduler's decisions never reach its store", 507},
      {PlantedBug::kReuseIncarnations, "reuse-incarnations", "exactly once",
       "a scheduler that restarts gives out incarnations again"},
      {PlantedBug::kTakeBusyForHung, "take-busy-for-hung", "liveness",
       "a task that prepares or exports for long is ended, however it gets on", 61},
      {PlantedBug::kExportUnstaged, "export-unstaged", "exactly once",
       "a task writes the model where users look for it, also when it was taken for dead", 1512},
      {PlantedBug::kMissServersWhileMoving, "miss-servers-while-moving", "liveness",
       "a job fails, or goes back, for servers that die when its model is whole", 741},
      {PlantedBug::kExpireWhileIsolated, "expire-while-isolated", "liveness",
       "a scheduler that is cut off declares everybody dead"},
      {PlantedBug::kTakeMomentUnfenced, "take-moment-unfenced", "quiet moment",
       "a moment is taken before every server has fenced a task that died", 108},
      {PlantedBug::kReplaceHeard, "replace-heard", "liveness",
       "a copy of a daemon's folder gets that one's name while it is heard", 1145},
      {PlantedBug::kTrustEveryLink, "trust-every-link", "liveness",
       "a job waits for a link that is dead, and both of whose ends live"},
      {PlantedBug::kBelieveOlderStore, "believe-older-store", "ownership",
       "a scheduler does not notice that its store is an older copy of itself", 1457},
      {PlantedBug::kLetGoUnheard, "let-go-unheard", "liveness",
       "a drained server lets its copy go to a server that may be dead", 2758957300},
  };
}

std::vector<Mutant> MutantsOfServers() {
  return {
      {PlantedBug::kSkipDuplicateFilter, "skip-duplicate-filter", "exactly once",
       "a server applies a repeated push once more"},
      {PlantedBug::kAcceptOldIncarnation, "accept-old-incarnation", "exactly once",
       "a server takes pushes of an incarnation that was fenced off", 803},
      {PlantedBug::kForgetFences, "forget-fences", "replica bytes",
       "a copied or restored shard has forgotten which incarnations were fenced off", 64},
      {PlantedBug::kStalenessOffByOne, "staleness-off-by-one", "staleness",
       "a read may be one iteration staler than the bound"},
      {PlantedBug::kReleaseBarrierEarly, "release-barrier-early", "reference",
       "an iteration is applied without its last slot"},
      {PlantedBug::kCountLateSlot, "count-late-slot", "backups",
       "a slot that comes after its iteration is added to the next one", 5},
      {PlantedBug::kReadCurrentForPrevious, "read-current-for-previous", "versions",
       "a reader of the version before gets the present one"},
      {PlantedBug::kIgnoreMembership, "ignore-membership", "liveness",
       "a server takes in no membership"},
      {PlantedBug::kForgetChangedRow, "forget-changed-row", "exactly once",
       "a row that was read from disk and then updated is not written back", 379},
      {PlantedBug::kTakeInOldPayload, "take-in-old-payload", "reference",
       "a payload that was read ahead takes the place of what a push made of it meanwhile", 19},
      {PlantedBug::kForgetPinnedRow, "forget-pinned-row", "captured moment",
       "a checkpoint that is being written has rows as they became meanwhile", 6},
      {PlantedBug::kReadPresentForPinned, "read-present-for-pinned", "snapshots",
       "a reader of a snapshot gets rows by key as they are now", 3},
      {PlantedBug::kKeepAnyVersion, "keep-any-version", "snapshots",
       "a server keeps a snapshot though it has more iterations than the moment", 654},
      {PlantedBug::kAcknowledgeBeforeReplica, "acknowledge-before-replica", "exactly once",
       "a push is acknowledged before the replicas have it", 753},
      {PlantedBug::kPublishBeforeDurable, "publish-before-durable", "checkpoints",
       "a checkpoint is complete before its files are on the disk", 54},
      {PlantedBug::kForgetBases, "forget-bases", "liveness",
       "a checkpoint that others rest on is removed", 89},
      {PlantedBug::kPromoteStaleReplica, "promote-stale-replica", "liveness",
       "a replica that is still being filled becomes primary", 9},
      {PlantedBug::kAcceptOldTerm, "accept-old-term", "replica bytes",
       "a replica takes in what a deposed primary sends", 12513},
      {PlantedBug::kInstallWithoutMarks, "install-without-marks", "exactly once",
       "a copied shard has lost which pushes it has applied", 583},
      {PlantedBug::kInstallWithoutOptimizerState, "install-without-optimizer-state", "reference",
       "a copied shard has a wrong optimizer state", 24},
      {PlantedBug::kInstallWithoutRowLifetime, "install-without-row-lifetime", "replica bytes",
       "a copied bucket has lost how often keys were pushed that have no row", 39},
      {PlantedBug::kIgnoreInstallChecksum, "ignore-install-checksum", "replica bytes",
       "a replica takes a whole shard of which bits have changed on the way", 319},
      {PlantedBug::kIgnoreRecordChecksum, "ignore-record-checksum", "replica bytes",
       "a replica takes records of which bits have changed on the way", 125},
      {PlantedBug::kIgnoreFrameChecksum, "ignore-frame-checksum", "reference",
       "pushes and pulls count though bits of them have changed on the way", 48},
      {PlantedBug::kReadWithoutLease, "read-without-lease", "versions",
       "a primary that was cut off goes on answering reads", 50},
      {PlantedBug::kReadWhileHandingOver, "read-while-handing-over", "versions",
       "a primary that may have been replaced answers reads by its lease alone", 245},
      {PlantedBug::kFailJobForBadDisk, "fail-job-for-bad-disk", "liveness",
       "a disk that loses rows ends the job, though others have copies", 406},
  };
}

std::vector<Mutant> MutantsOfLogs() {
  return {
      {PlantedBug::kReadOlderDisk, "read-older-disk", "versions",
       "the log of a disk that a server had before is taken for that of its last one", 1753},
      {PlantedBug::kDropFsync, "drop-fsync", "exactly once",
       "the log calls durable what was never synced", 12680},
      {PlantedBug::kAcknowledgeBeforeLogged, "acknowledge-before-logged", "exactly once",
       "a push is acknowledged before the log has it", 950},
      {PlantedBug::kAcknowledgeUnheardLog, "acknowledge-unheard-log", "versions",
       "a primary acknowledges pushes before the scheduler knows of its new log", 264},
      {PlantedBug::kReleaseGroupEarly, "release-group-early", "exactly once",
       "pushes are acknowledged when their group is written, and not yet synced", 1373},
      {PlantedBug::kRemoveLiveSegment, "remove-live-segment", "liveness",
       "cleaning removes a segment of the log that is still needed", 38},
      {PlantedBug::kIgnoreChecksum, "ignore-checksum", "exactly once",
       "the log believes bytes that have changed", 51},
      {PlantedBug::kTakeTearForDamage, "take-tear-for-damage", "liveness",
       "a log whose unsynced end was torn out of order is refused as a whole"},
  };
}

}  // namespace

const std::vector<Mutant>& AllMutants() {
  static const std::vector<Mutant>* const mutants = [] {
    auto* all = new std::vector<Mutant>(MutantsOfWorkersAndScheduler());
    for (const Mutant& mutant : MutantsOfServers()) all->push_back(mutant);
    for (const Mutant& mutant : MutantsOfLogs()) all->push_back(mutant);
    return all;
  }();
  return *mutants;
}

void Plant(PlantedBug bug) { planted = bug; }

int RunMutants(const MutantOptions& options) {
  int missed = 0;
  bool known = false;  // Whether `only` names a mutant.
  std::map<pid_t, const Mutant*> running;
  const auto finish_one = [&] {
    int status = 0;
    const auto ended = running.find(wait(&status));
    if (ended == running.end()) return;
    if (WIFSIGNALED(status)) Print(absl::StrCat("CRASHED: ", ended->second->name));
    if (status != 0) ++missed;
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
