#include "scheduler/core/placement/job_placer.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace capstan::scheduler {

absl::Status JobPlacer::Enqueue(const JobPlan& plan) {
  queue_changed_ = true;
  return queue_.Push(plan.id, plan.workers, plan.servers_needed(),
                     {plan.device, plan.plugin_rules});
}

void JobPlacer::Dequeue(const JobId& job) {
  queue_.Remove(job);
  queue_changed_ = true;
}

std::string JobPlacer::WhyTooSmall(const JobId& job, Instant now) const {
  if (membership_.MayReturn(now)) return "";
  return queue_.WhyTooSmall(job, CurrentSupplies());
}

// ---------------------------------------------------------------- tasks of running jobs

void JobPlacer::ReleaseSlots() {
  for (const Node* node : membership_.All()) {
    for (const TaskKey& key : slots_.Desired(node->id)) {
      if (TaskOf(jobs_, key) != nullptr) continue;
      slots_.Release(node->id, key);
      changed_ = true;
    }
  }
}

std::optional<WorkerSlots::Place> JobPlacer::ChoosePlace(const JobEntry& job) const {
  const auto place =
      slots_.Choose(job.plan.device, job.run->parts().task_watch.links().AvoidedWorkers());
  if (place || job.run->parts().AvoidsWorkers()) return place;
  return slots_.Choose(job.plan.device);
}

void JobPlacer::PlaceTasks(Instant now, Events& events) {
  for (JobEntry* entry : jobs_.Running()) {
    for (const Rank rank : entry->run->parts().UnplacedRanks()) {
      const std::optional<WorkerSlots::Place> place = ChoosePlace(*entry);
      if (!place) {
        YieldSlots(*entry->run, now, events);
        break;  // A younger job may need less of a worker.
      }
      const TaskKey key{entry->plan.id, rank, incarnations_.Take()};
      slots_.Take(*place, key);
      changed_ = true;
      entry->run->PlaceTask(rank, key.incarnation, place->node,
                            membership_.Find(place->node)->info.address, now, events);
    }
  }
}

// A task may leave a drained daemon if another daemon has a free slot, or if its job has a task on
// a daemon that is not closing.
bool JobPlacer::MayMoveTask(const TaskKey& key) const {
  if (slots_.free(jobs_.Find(key.job)->plan.device) > 0) return true;
  const JobRun& run = *jobs_.RunOf(key.job);
  const std::vector<TaskKey> placed = run.parts().PlacedTasks();
  return std::any_of(placed.begin(), placed.end(), [&](const TaskKey& other) {
    const Node* node = membership_.Find(run.parts().tasks.at(other.rank).node);
    return node != nullptr && !node->closing();
  });
}

void JobPlacer::MoveTask(const TaskKey& key, const std::string& why, Instant now, Events& events) {
  jobs_.RunOf(key.job)->MoveTask(key.rank, why, now, events);
  ReleaseSlots();
  PlaceTasks(now, events);
}

void JobPlacer::MoveTasks(Instant now, Events& events) {
  for (const Node* node : membership_.All()) {
    // A leaving daemon ends its tasks itself.
    if (!node->alive || !node->draining || node->leaving) continue;
    for (const TaskKey& key : slots_.Desired(node->id)) {
      if (TaskOf(jobs_, key) == nullptr || !MayMoveTask(key)) continue;
      MoveTask(key, absl::StrCat(node->id, " is drained"), now, events);
    }
  }
  MoveStranded(now, events);
}

void JobPlacer::YieldSlots(JobRun& run, Instant now, Events& events) {
  for (const Rank rank : run.parts().YieldingRanks()) {
    run.MoveTask(rank, "another rank needs its slot", now, events);
  }
}

// Moves stranded tasks. Such a task has left a worker from which it cannot reach a server, but is
// on that worker again, because no other worker had a free slot.
void JobPlacer::MoveStranded(Instant now, Events& events) {
  for (JobEntry* entry : jobs_.Running()) {
    JobRun& run = *entry->run;
    for (const TaskKey& key : run.parts().PlacedTasks()) {
      const NodeId server = run.parts().task_watch.links().StrandedFrom(key.rank);
      if (server.empty()) continue;
      if (!slots_.Choose(entry->plan.device, run.parts().task_watch.links().AvoidedWorkers())) {
        YieldSlots(run, now, events);
        break;
      }
      MoveTask(key, absl::StrCat("it cannot reach ", server), now, events);
    }
  }
}

// ---------------------------------------------------------------- waiting jobs

std::vector<const Node*> JobPlacer::ServersWith(const std::vector<PluginRule>& rules) const {
  std::vector<const Node*> servers = membership_.Available(Role::kServer);
  std::erase_if(servers,
                [&rules](const Node* node) { return !HasRules(node->info.plugin_rules, rules); });
  return servers;
}

// Returns the supply for each need of the waiting jobs.
Supplies JobPlacer::CurrentSupplies() const {
  Supplies supplies;
  for (const JobNeed& need : queue_.Needs()) {
    Supply supply{.slots_free = slots_.free(need.device),
                  .slots = slots_.capacity(need.device),
                  .servers = static_cast<int>(ServersWith(need.rules).size()),
                  .no_gpus = "",
                  .without_rules = ""};
    if (need.device.kind == DeviceNeed::Kind::kGpu && supply.slots == 0) {
      supply.no_gpus = slots_.WhyNoGpus(need.device);
    }
    for (const Node* node : membership_.Available(Role::kServer)) {
      if (HasRules(node->info.plugin_rules, need.rules)) continue;
      absl::StrAppend(&supply.without_rules, supply.without_rules.empty() ? "" : ", ", node->id);
    }
    supplies.emplace_back(need, std::move(supply));
  }
  return supplies;
}

// A node that died while no scheduler ran is found dead only at the end of a lease. So jobs start
// when the live nodes have had the time to come back.
void JobPlacer::StartJobs(Instant now, Events& events) {
  if (membership_.MayReturn(now)) return;
  while (const std::optional<JobId> job = queue_.Startable(CurrentSupplies())) {
    Dequeue(*job);
    StartJob(*jobs_.Find(*job), now, events);
    PlaceTasks(now, events);
  }
}

void JobPlacer::StartJob(JobEntry& entry, Instant now, Events& events) {
  const JobPlan& plan = entry.plan;
  auto routing = std::make_shared<const Routing>(
      entry.restore
          ? PlaceRanges(plan.id, Generation(JobRun::kRestoreTerm.value()), entry.restore->shards,
                        ChooseServers(plan), plan.replicas)
          : PlaceShards(plan.id, Generation(1), plan.tables, ChooseServers(plan), plan.replicas));
  JobStarted started{plan.id, {}};
  for (const ServerRef& server : routing->servers) started.servers.push_back(server.node);
  events.push_back(std::move(started));
  entry.run = std::make_unique<JobRun>(plan, std::move(routing), options_, now, entry.restore);
  jobs_.NoteRunning(entry);
  JoinLiveServers(membership_, /*stored=*/{}, plan, now, *entry.run, events);
  changed_ = true;
}

// Returns as many servers as the plan asks for (0: all), namely those with the fewest shards,
// sorted by name.
std::vector<ServerRef> JobPlacer::ChooseServers(const JobPlan& plan) const {
  std::vector<const Node*> servers = ServersWith(plan.plugin_rules);
  if (plan.servers > 0) {
    std::stable_sort(servers.begin(), servers.end(), [this](const Node* a, const Node* b) {
      return ShardsOn(jobs_, a->id) < ShardsOn(jobs_, b->id);
    });
    servers.resize(static_cast<size_t>(plan.servers_needed()));
    std::sort(servers.begin(), servers.end(),
              [](const Node* a, const Node* b) { return a->id < b->id; });
  }
  std::vector<ServerRef> chosen;
  for (const Node* node : servers) {
    chosen.push_back({node->id, node->info.address, node->incarnation});
  }
  return chosen;
}

void JobPlacer::ExplainPending() {
  const Supplies supplies = CurrentSupplies();
  if (supplies == explained_supplies_ && !queue_changed_) return;
  explained_supplies_ = supplies;
  queue_changed_ = false;
  for (const JobId& job : queue_.Jobs()) {
    JobEntry& entry = *jobs_.Find(job);
    std::string why = queue_.WhyWaiting(job, supplies);
    if (why == entry.why_pending) continue;
    entry.why_pending = std::move(why);
    ++entry.told_revision;
  }
}

void JoinLiveServers(const Membership& membership,
                     const std::map<NodeId, std::vector<StoredShard>>& stored, const JobPlan& plan,
                     Instant now, JobRun& run, Events& events) {
  for (const Node* node : membership.All()) {
    if (!node->alive || node->info.role != Role::kServer) continue;
    if (!HasRules(node->info.plugin_rules, plan.plugin_rules)) continue;
    const auto logs = stored.find(node->id);
    run.OnServerJoined(
        {node->id, node->info.address, node->incarnation},
        logs == stored.end() ? absl::Span<const StoredShard>() : absl::MakeConstSpan(logs->second),
        node->closing(), now, events);
  }
}

}  // namespace capstan::scheduler
