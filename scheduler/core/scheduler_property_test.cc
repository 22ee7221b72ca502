// Tests the core's invariants while processes die or hang, and messages are lost, repeated or
// delayed. A failing seed replays exactly.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "scheduler/core/testing/fake_cluster.h"

namespace capstan::scheduler::scheduler_property_test {
namespace {

using testing::Dice;
using testing::FakeCluster;

JobPlan DrawPlan(Dice& dice, int number, int workers, int servers) {
  JobPlan plan;
  plan.id = absl::StrCat("job-", number);
  plan.consistency.mode = static_cast<ConsistencyMode>(dice.Below(3));
  plan.workers = 1 + static_cast<int>(dice.Below(static_cast<uint32_t>(workers)));
  plan.servers = static_cast<int>(dice.Below(static_cast<uint32_t>(servers) + 1));
  plan.max_restarts = 1000;
  plan.worker_wait = absl::Minutes(10);
  plan.epochs = 1 + static_cast<int>(dice.Below(3));
  plan.batch_size = 1 + dice.Below(20);
  plan.consistency.slots = 1 + static_cast<int>(dice.Below(6));
  plan.train_count = 1 + dice.Below(2000);
  plan.test_count = dice.Below(2) * (1 + dice.Below(500));
  plan.iterations_max = dice.Chance(0.2) ? 1 + dice.Below(40) : 0;
  plan.replicas = static_cast<int>(dice.Below(static_cast<uint32_t>(std::min(servers, 3))));
  plan.log = dice.Chance(0.3);
  plan.server_wait = absl::Minutes(10);
  plan.tables = {1 + dice.Below(3'000'000), dice.Below(1000)};
  if (dice.Chance(0.5)) plan.tables[1] = TableSize(1 + dice.Below(8), /*is_sparse=*/true);
  plan.export_path = "/out";
  plan.checkpoint_folder = absl::StrCat("/checkpoints/", plan.id);
  if (dice.Chance(0.3)) plan.checkpoint_iterations = 1 + dice.Below(100);
  if (dice.Chance(0.3)) plan.checkpoint_interval = absl::Milliseconds(50 + dice.Below(2000));
  return plan;
}

// Gives GPUs to about half of the workers. Returns the number of these workers.
int DrawGpus(FakeCluster& cluster, Dice& dice, int workers) {
  int with_gpus = 0;
  for (int i = 1; i <= workers; ++i) {
    const int gpus = static_cast<int>(dice.Below(4)) - 1;
    if (gpus > 0) ++with_gpus;
    cluster.SetGpus(absl::StrCat("worker-", i), std::max(gpus, 0));
  }
  return with_gpus;
}

DeviceNeed DrawNeed(Dice& dice, bool enough_gpus) {
  if (enough_gpus && dice.Chance(0.5)) return {.kind = DeviceNeed::Kind::kGpu, .gpus = 1};
  if (dice.Chance(0.5)) return {.kind = DeviceNeed::Kind::kAny, .gpus = 1};
  return {};
}

void LoseSomeGpu(FakeCluster& cluster, Dice& dice) {
  const auto tasks = cluster.RunningTasks();
  if (tasks.empty()) return;
  const auto& [job, rank] = tasks[dice.Below(static_cast<uint32_t>(tasks.size()))];
  cluster.LoseGpu(job, rank);
}

// Restarts the workers with lost GPUs, after all losses have been reported.
void RepairGpus(FakeCluster& cluster) {
  cluster.Run(absl::Seconds(3));
  for (const NodeView& node : cluster.core().Nodes()) {
    if (node.gpus_lost.empty() || !node.alive) continue;
    cluster.Kill(node.id);
    cluster.AddWorker(node.id, 2);
  }
}

// Kills a server, brings one back, drains one, or cancels a drain. In one cluster servers are
// either killed or drained, because after a drain the rest may not survive another death.
void MoveServers(FakeCluster& cluster, bool drain, std::vector<std::string>& killed) {
  Dice& dice = cluster.dice();
  const std::vector<std::string> servers = cluster.AliveNodes(Role::kServer);
  const uint32_t kind = dice.Below(4);
  if (kind == 0 && !killed.empty()) {
    cluster.AddServer(killed.back());
    killed.pop_back();
  }
  if (kind == 0 || servers.empty()) return;
  const std::string& server = servers[dice.Below(static_cast<uint32_t>(servers.size()))];
  if (drain) return cluster.Drain(server, /*cancel=*/dice.Chance(0.5));
  if (!cluster.CanLose(server)) return;
  cluster.Kill(server);
  killed.push_back(server);
}

// Causes a fault of a task, a daemon or the scheduler. A killed daemon comes back later under its
// name.
void Misfortune(FakeCluster& cluster, std::vector<std::string>& killed) {
  Dice& dice = cluster.dice();
  const auto tasks = cluster.RunningTasks();
  const uint32_t kind = dice.Below(10);
  if (kind < 2 && !killed.empty()) {
    cluster.AddWorker(killed.back(), 1 + static_cast<int>(dice.Below(2)));
    killed.pop_back();
  } else if (kind < 3) {
    const std::vector<std::string> workers = cluster.AliveNodes(Role::kWorker);
    if (workers.size() < 2) return;
    const std::string& victim = workers[dice.Below(static_cast<uint32_t>(workers.size()))];
    cluster.Kill(victim);
    killed.push_back(victim);
  } else if (!tasks.empty()) {
    const auto& [job, rank] = tasks[dice.Below(static_cast<uint32_t>(tasks.size()))];
    if (kind < 6) cluster.CrashTask(job, rank);
    if (kind == 6) cluster.HangTask(job, rank);
    if (kind == 7) cluster.SlowTask(job, rank);
  }
  if (kind == 7 && !tasks.empty()) cluster.AskCheckpoint(tasks.front().first);
  if (kind >= 6 && !tasks.empty()) cluster.AskSnapshot(tasks.front().first, dice.Below(3));
  if (kind >= 8) {
    const auto death = kind == 8 ? FakeCluster::Death::kBetweenSteps : FakeCluster::Death::kInStep;
    cluster.KillScheduler(absl::Milliseconds(dice.Below(5000)), death);
  }
}

// Checks that a job which begins at the newest checkpoint of `plan` trains the rest, and ends.
std::string RestoreNewest(FakeCluster& cluster, const JobPlan& plan) {
  if (cluster.Complete(plan.id).empty()) return "";
  const CheckpointPublish newest = cluster.Complete(plan.id).back();
  JobPlan again = plan;
  again.id = absl::StrCat(plan.id, "-again");
  again.checkpoint_folder = absl::StrCat("/checkpoints/", again.id);
  cluster.AwaitScheduler();
  RestoreFrom from{newest.folder, newest.at};
  for (const CheckpointPart& part : newest.parts)
    from.shards.push_back({part.shard, part.elements});
  if (!cluster.Submit(again, from).ok()) return "refused";
  cluster.RunUntil([&] { return cluster.Ended(again.id); }, absl::Minutes(15));
  const JobView view = cluster.View(again.id);
  if (view.state != JobState::kSucceeded) {
    return absl::StrCat(again.id, ": ", view.failure.message, view.detail);
  }
  if (view.results.size() != cluster.View(plan.id).results.size()) return "an epoch's result";
  cluster.CheckTrained(again);
  return cluster.error();
}

std::string RunSeed(uint64_t seed) {
  Dice dice(seed);
  FakeCluster::Options options{.seed = seed + 1'000'000};
  options.core.lease = absl::Seconds(6);  // A lossy network must not kill a server that lives.
  options.staleness_bound = static_cast<int>(dice.Below(3));
  if (dice.Chance(0.6)) options.network = {0.05, 0.05, 0.1, 0.1};
  if (dice.Chance(0.3)) options.checkpoint_fails = 0.1;
  FakeCluster cluster(options);
  const int servers = 1 + static_cast<int>(dice.Below(3));
  const int workers = 1 + static_cast<int>(dice.Below(4));
  for (int i = 1; i <= servers; ++i) cluster.AddServer(absl::StrCat("server-", i));
  for (int i = 1; i <= workers; ++i)
    cluster.AddWorker(absl::StrCat("worker-", i), 1 + static_cast<int>(dice.Below(2)));

  Dice devices(seed + 2'000'000);
  const int with_gpus = DrawGpus(cluster, devices, workers);
  std::vector<JobPlan> plans;
  const int jobs = 1 + static_cast<int>(dice.Below(2));
  for (int i = 1; i <= jobs; ++i) {
    plans.push_back(DrawPlan(dice, i, workers, servers));
    plans.back().device = DrawNeed(devices, with_gpus >= plans.back().workers);
    if (!cluster.Submit(plans.back()).ok()) return "a job was refused";
  }
  const auto all_ended = [&] {
    return std::all_of(plans.begin(), plans.end(),
                       [&](const JobPlan& plan) { return cluster.Ended(plan.id); });
  };
  std::vector<std::string> killed;
  std::vector<std::string> killed_servers;
  const bool drain = dice.Chance(0.5);
  const int misfortunes = static_cast<int>(dice.Below(12));
  for (int i = 0; i < misfortunes && !all_ended(); ++i) {
    cluster.Run(absl::Milliseconds(dice.Below(600)));
    Misfortune(cluster, killed);
    if (dice.Chance(0.5)) MoveServers(cluster, drain, killed_servers);
    if (devices.Chance(0.3)) LoseSomeGpu(cluster, devices);
  }
  // From here on there are no faults, so every job must end.
  cluster.set_network({});
  for (const std::string& name : killed) cluster.AddWorker(name, 2);
  for (const std::string& name : killed_servers) cluster.AddServer(name);
  cluster.AwaitScheduler();
  if (with_gpus > 0) RepairGpus(cluster);
  for (int i = 1; i <= servers; ++i) cluster.Drain(absl::StrCat("server-", i), /*cancel=*/true);
  if (!cluster.RunUntil(all_ended, absl::Minutes(15)) && cluster.error().empty()) {
    for (const JobPlan& plan : plans) {
      const JobView view = cluster.View(plan.id);
      if (!view.ended) return absl::StrCat(plan.id, " never ended: ", view.detail);
    }
  }
  if (!cluster.error().empty()) return cluster.error();
  for (const JobPlan& plan : plans) {
    const JobView view = cluster.View(plan.id);
    if (view.state != JobState::kSucceeded)
      return absl::StrCat(plan.id, ": ", view.failure.message);
    if (view.samples_done != view.samples_total)
      return absl::StrCat(plan.id, ": samples are missing");
    for (const EpochResult& result : view.results) {
      if (result.test_samples != plan.test_count) return absl::StrCat(plan.id, ": test samples");
      if (plan.test_count > 0 && result.test_accuracy != 1.0)
        return absl::StrCat(plan.id, ": sums");
    }
    cluster.CheckTrained(plan);
    if (const std::string error = RestoreNewest(cluster, plan); !error.empty()) return error;
  }
  cluster.CheckAllAnswered();
  return cluster.error();
}

TEST_CASE(
    "Scheduler: whatever happens, every sample is leased once an epoch, jobs end, the dead get no "
    "work, no GPU has two tasks and generations only grow",
    "[scheduler][core]") {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    const std::string error = RunSeed(seed);
    INFO("seed " << seed);
    REQUIRE(error == "");
  }
}

}  // namespace
}  // namespace capstan::scheduler::scheduler_property_test
