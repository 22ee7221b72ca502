#include "tests/simulation/run_seed.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/checkers/backup_slots.h"
#include "tests/simulation/checkers/evaluation.h"
#include "tests/simulation/checkers/exactly_once_ledger.h"
#include "tests/simulation/checkers/liveness.h"
#include "tests/simulation/checkers/ownership.h"
#include "tests/simulation/checkers/quiet_moment.h"
#include "tests/simulation/checkers/reference_bits.h"
#include "tests/simulation/checkers/replica_bytes.h"
#include "tests/simulation/checkers/sample_leases.h"
#include "tests/simulation/checkers/staleness_and_versions.h"
#include "tests/simulation/nemesis/cluster.h"
#include "tests/simulation/nemesis/nemesis.h"
#include "tests/simulation/world/world.h"

namespace capstan::sim {
namespace {

// A job and those who judge it.
struct Judged {
  JobWorld* job = nullptr;
  Liveness* liveness = nullptr;
  ReplicaBytes* bytes = nullptr;
};

template <typename Kind>
Kind* Add(JobWorld* job, std::unique_ptr<Kind> checker) {
  Kind* added = checker.get();
  job->checkers.push_back(std::move(checker));
  return added;
}

std::vector<std::vector<server::HeldCopy>> CopiesOf(const JobId& job, Cluster& cluster) {
  std::vector<std::vector<server::HeldCopy>> copies;
  for (const auto& server : cluster.servers()) {
    const auto held = server->Held(job);
    if (held != nullptr) copies.push_back(held->Copies());
  }
  return copies;
}

// Adds the checkers of the job's promises.
Judged AddCheckers(World* world, Cluster* cluster, JobWorld* job) {
  const JobOptions& options = job->options;
  if (options.backups > 0) {
    Add(job, std::make_unique<BackupSlots>(&job->workload));
  } else if (options.mode == ConsistencyMode::kBsp) {
    Add(job, std::make_unique<ReferenceBits>(&job->workload));
  } else {
    Add(job, std::make_unique<ExactlyOnceLedger>(&job->workload, world->options.left_to_task));
    Add(job,
        std::make_unique<SampleLeases>(options, &world->reached[Reached::kSamplesLeasedAgain]));
    Add(job, std::make_unique<QuietMoment>(options.replicas == 0 && !options.log));
  }
  Add(job, std::make_unique<StalenessAndVersions>(options));
  Add(job, std::make_unique<Ownership>());
  Add(job, std::make_unique<Evaluation>(options));
  Judged judged{.job = job};
  judged.liveness = Add(job, std::make_unique<Liveness>(world, job));
  judged.bytes =
      Add(job,
          std::make_unique<ReplicaBytes>([job, cluster] { return CopiesOf(job->id(), *cluster); }));
  return judged;
}

void LookOften(World* world, const std::vector<Judged>& all) {
  world->loop.After(absl::Seconds(1), [world, &all] {
    for (const Judged& judged : all) judged.bytes->Look();
    LookOften(world, all);
  });
}

bool Broken(World& world) {
  for (const auto& job : world.jobs) {
    for (const auto& checker : job->checkers) {
      if (checker->failure().empty()) continue;
      world.failure = checker->failure();
      if (world.jobs.size() > 1) absl::StrAppend(&world.failure, " (", job->id(), ")");
    }
  }
  return !world.failure.empty();
}

// Whether a promise is. Where the scheduler goes on from an older copy of its store only the jobs'
// ends tell what counts.
bool BrokenForSure(World& world) {
  return world.faults[Fault::kStorePutBack] == 0 && Broken(world);
}

// Jobs in the order in which they must have ended at the latest. A job is passed over while there
// are too few nodes for it: those that have their places may have got them before one that was
// submitted earlier.
std::vector<const Judged*> ByPlaces(const std::vector<Judged>& all) {
  std::vector<const Judged*> order;
  for (const Judged& judged : all) order.push_back(&judged);
  std::stable_partition(order.begin(), order.end(),
                        [](const Judged* judged) { return judged->liveness->started(); });
  return order;
}

// Runs the world until all jobs have ended, a promise is broken, or the time is over.
void Run(World& world, Cluster& cluster, Nemesis& nemesis, const std::vector<Judged>& all) {
  // A scheduler whose last words were written, and killed it, has to come back to be asked.
  const auto has_ended = [&](const Judged& judged) {
    return judged.liveness->ended() && cluster.scheduler().Job(judged.job->id()).has_value();
  };
  const auto ended = [&] { return std::all_of(all.begin(), all.end(), has_ended); };
  const Instant heal = world.loop.Now() + world.options.chaos_time;
  world.loop.RunUntil(heal, [&] { return BrokenForSure(world) || ended(); });
  if (!world.failure.empty() || ended()) return;
  nemesis.Heal();
  Instant begin = heal;
  for (const Judged* judged : ByPlaces(all)) {
    if (has_ended(*judged)) continue;
    world.loop.RunUntil(begin + world.options.JobTime(judged->job->options),
                        [&] { return BrokenForSure(world) || has_ended(*judged); });
    if (!world.failure.empty() || !has_ended(*judged)) return;
    begin = world.loop.Now();
  }
}

// Judges the job's end.
void CheckEnd(World& world, Cluster& cluster, const Judged& judged) {
  const std::optional<scheduler::JobView> job = cluster.scheduler().Job(judged.job->id());
  if (judged.liveness->EndedForOlderStore(job)) {
    ++world.reached[Reached::kJobFailedOlderStore];
    judged.job->checkers.clear();  // They have seen decisions that are lost.
    return;
  }
  const bool succeeded = job.has_value() && job->state == scheduler::JobState::kSucceeded;
  if (succeeded && world.faults[Fault::kStorePutBack] > 0) {
    ++world.reached[Reached::kJobOutlivedOlderStore];
  }
  if (succeeded) ++world.reached[Reached::kJobSucceeded];
  if (job.has_value() && job->state == scheduler::JobState::kStopped) {
    ++world.reached[Reached::kJobStopped];
  }
  if (job.has_value() && job->failure.reason == scheduler::FailureReason::kServerLost) {
    ++world.reached[Reached::kJobFailedServerLost];
  }
  if (succeeded && judged.job->outlived_stop) ++world.reached[Reached::kJobOutlivedStop];
  judged.job->Tell([&](Checker& checker) { checker.AtEnd(succeeded); });
  judged.liveness->CheckEnd(job);
}

}  // namespace

SeedResult RunSeed(const Options& options, bool verbose) {
  World world(options, verbose);
  Cluster cluster(&world);
  std::vector<Judged> all;
  for (const auto& job : world.jobs) all.push_back(AddCheckers(&world, &cluster, job.get()));
  world.alive_since = [&cluster](const std::string& node) { return cluster.AliveSince(node); };
  world.silence_of = [&cluster](const scheduler::NodeDied& died) {
    return cluster.clock(0).Now() - died.last_seen;
  };
  LookOften(&world, all);
  Nemesis nemesis(&world, &cluster);
  cluster.Start();
  nemesis.Start();
  Run(world, cluster, nemesis, all);
  for (const auto& server : cluster.servers()) server->CountDiskFaults();
  for (const Judged& judged : all) {
    world.reached[Reached::kCopiesCompared] += judged.bytes->compared();
    world.reached[Reached::kRowRefused] += judged.bytes->refused();
    world.reached[Reached::kRowEvicted] += judged.bytes->evicted();
  }
  world.reached[Reached::kRowReadFromDisk] += world.row_disks.read;
  if (world.failure.empty()) {
    for (const Judged& judged : all) CheckEnd(world, cluster, judged);
    Broken(world);
  }
  return {.failure = world.failure,
          .trace_hash = world.trace.value(),
          .faults = world.faults,
          .reached = world.reached,
          .events = static_cast<int64_t>(world.loop.events_run()),
          .calls = world.network.calls()};
}

}  // namespace capstan::sim
