#include "tests/simulation/run_seed.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/evaluation.h"
#include "tests/simulation/exactly_once_ledger.h"
#include "tests/simulation/liveness.h"
#include "tests/simulation/nemesis.h"
#include "tests/simulation/ownership.h"
#include "tests/simulation/quiet_moment.h"
#include "tests/simulation/reference_bits.h"
#include "tests/simulation/replica_bytes.h"
#include "tests/simulation/sample_leases.h"
#include "tests/simulation/staleness_and_versions.h"
#include "tests/simulation/world.h"

namespace capstan::sim {
namespace {

// Adds the checkers of the job's promises; returns the one that judges its end.
Liveness* AddCheckers(World* world) {
  const JobOptions& job = world->options.job;
  auto& checkers = world->checkers;
  if (job.mode == Mode::kBsp) {
    checkers.push_back(std::make_unique<ReferenceBits>(&world->workload));
  } else {
    checkers.push_back(
        std::make_unique<ExactlyOnceLedger>(&world->workload, world->options.left_to_task));
    checkers.push_back(
        std::make_unique<SampleLeases>(job, &world->reached[Reached::kSamplesLeasedAgain]));
    checkers.push_back(std::make_unique<QuietMoment>(job.replicas == 0 && !job.log));
  }
  checkers.push_back(std::make_unique<StalenessAndVersions>(job));
  checkers.push_back(std::make_unique<Ownership>());
  checkers.push_back(std::make_unique<Evaluation>(job));
  auto liveness = std::make_unique<Liveness>(world);
  Liveness* judge = liveness.get();
  checkers.push_back(std::move(liveness));
  return judge;
}

std::vector<std::vector<server::HeldCopy>> CopiesOf(const World& world, Cluster& cluster) {
  std::vector<std::vector<server::HeldCopy>> copies;
  for (const auto& server : cluster.servers()) {
    const auto held = server->Held(world.workload.job()->plan.id);
    if (held != nullptr) copies.push_back(held->Copies());
  }
  return copies;
}

void LookOften(World* world, ReplicaBytes* bytes) {
  world->loop.After(absl::Seconds(1), [world, bytes] {
    bytes->Look();
    LookOften(world, bytes);
  });
}

bool Broken(World& world) {
  for (const auto& checker : world.checkers) {
    if (!checker->failure().empty()) world.failure = checker->failure();
  }
  return !world.failure.empty();
}

}  // namespace

SeedResult RunSeed(const Options& options, bool verbose) {
  World world(options, verbose);
  Liveness* judge = AddCheckers(&world);
  Cluster cluster(&world);
  world.alive_since = [&cluster](const std::string& node) { return cluster.AliveSince(node); };
  auto bytes = std::make_unique<ReplicaBytes>([&] { return CopiesOf(world, cluster); });
  ReplicaBytes* replica_bytes = bytes.get();
  world.checkers.push_back(std::move(bytes));
  LookOften(&world, replica_bytes);
  Nemesis nemesis(&world, &cluster);
  cluster.Start();
  nemesis.Start();

  const auto stop = [&] { return judge->ended() || Broken(world); };
  const Instant heal = world.loop.Now() + options.chaos_time;
  world.loop.RunUntil(heal, stop);
  if (world.failure.empty() && !judge->ended()) {
    nemesis.Heal();
    const absl::Duration work =
        options.prepare_max + options.evaluations_max() + options.export_max + options.move_max;
    world.loop.RunUntil(heal + options.heal_time + 2 * work, stop);
  }
  for (const auto& server : cluster.servers()) server->CountDiskFaults();
  world.reached[Reached::kCopiesCompared] += replica_bytes->compared();
  world.reached[Reached::kRowRefused] += replica_bytes->refused();
  world.reached[Reached::kRowEvicted] += replica_bytes->evicted();
  world.reached[Reached::kRowReadFromDisk] += world.row_disks.read;
  if (world.failure.empty()) {
    const std::optional<scheduler::JobView> job = cluster.scheduler().Job();
    const bool succeeded = job.has_value() && job->state == scheduler::JobState::kSucceeded;
    if (succeeded) ++world.reached[Reached::kJobSucceeded];
    if (job.has_value() && job->state == scheduler::JobState::kStopped) {
      ++world.reached[Reached::kJobStopped];
    }
    if (job.has_value() && job->failure.reason == scheduler::FailureReason::kServerLost) {
      ++world.reached[Reached::kJobFailedServerLost];
    }
    world.Tell([&](Checker& checker) { checker.AtEnd(succeeded); });
    judge->CheckEnd(job);
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
