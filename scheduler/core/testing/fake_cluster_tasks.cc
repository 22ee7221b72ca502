// FakeCluster: the work of the fake tasks, and the checks of all events.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/core/testing/fake_cluster.h"

namespace capstan::scheduler::testing {

JobPlan Plan(const std::string& id, int workers, ConsistencyMode mode) {
  JobPlan plan;
  plan.id = id;
  plan.consistency.mode = mode;
  plan.workers = workers;
  plan.max_restarts = 3;
  plan.epochs = 2;
  plan.batch_size = 10;
  plan.consistency.slots = 4;
  plan.train_count = 3000;
  plan.test_count = 500;
  plan.tables = {431'080};
  plan.export_path = "/out";
  return plan;
}

// ---------------------------------------------------------------- tasks

void FakeCluster::SetGpus(const std::string& name, int count) {
  devices_[name].gpus.clear();
  for (int i = 0; i < count; ++i) devices_[name].gpus.push_back({.index = i, .name = "fake"});
}

void FakeCluster::LoseGpu(const JobId& job, int rank) {
  FakeTask* task = FindRank(job, rank);
  if (task != nullptr && !task->gpus.empty()) task->gpu_lost = true;
}

// Checks that each task has the GPUs that its job needs, from this worker and for itself alone.
void FakeCluster::ApplyGpus(FakeNode& node, const NodeReply& reply) {
  for (const TaskGpus& given : reply.gpus) {
    const auto task = node.tasks.find(given.task);
    if (task == node.tasks.end()) return Fail("GPUs for a task that is not to run");
    if (task->second.gpus.empty()) task->second.gpus = given.gpus;
    if (task->second.gpus != given.gpus) Fail("the GPUs of a task have changed");
  }
  std::set<int> taken;
  for (const auto& [key, task] : node.tasks) {
    if (task.exited) continue;
    const DeviceNeed& need = jobs_[key.job].plan.device;
    const int count = static_cast<int>(task.gpus.size());
    const bool none = need.kind != DeviceNeed::Kind::kGpu && count == 0;
    if (!none && count != need.gpus) Fail(absl::StrCat(key.job, ": a task has ", count, " GPUs"));
    for (const int gpu : task.gpus) {
      const bool there = gpu < static_cast<int>(devices_[node.name].gpus.size());
      if (!there || !taken.insert(gpu).second) {
        Fail(absl::StrCat(node.name, ": GPU ", gpu, there ? " has two tasks" : " is not there"));
      }
    }
  }
}

void FakeCluster::SyncTask(FakeTask& task) {
  if (task.waiting && now_ < task.give_up) return;
  if (task.finished || task.refused) {
    task.exited = true;
    return;
  }
  TaskReport report;
  report.task = task.key;
  report.assignment_seen = task.assignment.generation;
  report.routing_seen = task.routing_seen;
  report.iterations = Iteration(task.iterations);
  for (const auto& [slot, next] : task.slots) report.slots.push_back({slot, next});
  for (const auto& [id, sample] : task.samples) report.samples.push_back(sample);
  report.totals = task.totals;
  report.exported = task.exported;
  report.idle = AllDone(task);
  if (task.gpu_lost) report.failure = {FailureReason::kDeviceLost, "GPU 0 fell off the bus"};
  Request request{.ticket = Ticket(next_ticket_++), .task = std::move(report)};
  task.waiting = request.ticket;
  task.give_up = now_ + kGiveUp;
  task_calls_[request.ticket] = task.key;
  Send(std::move(request));
}

void FakeCluster::TakeReply(const TaskReply& reply) {
  const auto call = task_calls_.find(reply.ticket);
  if (call == task_calls_.end()) return;
  FakeTask* task = FindTask(call->second);
  task_calls_.erase(call);
  if (task == nullptr || task->exited || task->waiting != reply.ticket) return;
  task->waiting.reset();
  if (!reply.status.ok()) {
    task->refused = true;
    return;
  }
  if (task->gpu_lost) {
    task->exited = true;
    task->exit.exit_code = 1;
    return;
  }
  if (reply.routing != nullptr) task->routing_seen = reply.routing->generation;
  if (!reply.has_assignment) return;
  if (reply.assignment.generation <= task->assignment.generation) {
    Fail("an assignment that is not newer");
  }
  TakeAssignment(*task, reply.assignment);
}

void FakeCluster::TakeAssignment(FakeTask& task, const Assignment& assignment) {
  std::map<LeaseId, SampleReport> samples;
  for (const SampleLease& lease : assignment.samples) {
    const auto known = task.samples.find(lease.id);
    samples[lease.id] =
        known != task.samples.end()
            ? known->second
            : SampleReport{.lease = lease.id, .position_done = lease.positions.begin};
  }
  std::map<SlotId, Iteration> slots;
  for (const SlotLease& lease : assignment.slots) {
    const auto known = task.slots.find(lease.slot);
    const Iteration next =
        known == task.slots.end() ? lease.begin : std::max(known->second, lease.begin);
    slots[lease.slot] = next;
  }
  task.samples = std::move(samples);
  task.slots = std::move(slots);
  task.iterations = std::max(task.iterations, assignment.start_iteration.value());
  task.exported = false;
  task.assignment = assignment;
}

bool FakeCluster::AllDone(const FakeTask& task) const {
  if (task.assignment.paused) return true;
  for (const SampleLease& lease : task.assignment.samples) {
    if (task.samples.at(lease.id).position_done < lease.positions.end) return false;
  }
  for (const SlotLease& lease : task.assignment.slots) {
    if (task.slots.at(lease.slot) < lease.end) return false;
  }
  return true;
}

void FakeCluster::Evaluate(FakeTask& task) const {
  const auto epoch = static_cast<size_t>(task.assignment.epoch.value());
  const double loss = epoch < options_.losses.size() ? options_.losses[epoch] : 0.5;
  for (const SampleLease& lease : task.assignment.samples) {
    const double size = static_cast<double>(lease.positions.size());
    task.samples[lease.id] = {lease.id, lease.positions.end, size * loss, lease.positions.size()};
  }
}

void FakeCluster::Work(FakeTask& task) {
  if (now_ < task.ready || task.assignment.paused || !ServersReady(task.key.job)) return;
  const int batches = task.slow ? 1 : options_.batches_per_step;
  if (task.slow) task.ready = now_ + absl::Milliseconds(100);
  for (int i = 0; i < batches; ++i) {
    switch (task.assignment.phase) {
      case TaskPhase::kTrain:
        if (!(task.assignment.slots.empty() ? TrainSample(task) : TrainSlots(task))) return;
        break;
      case TaskPhase::kEvaluate:
        Evaluate(task);
        return;
      case TaskPhase::kExport:
        task.exported = true;
        return;
      case TaskPhase::kFinish:
        task.finished = true;
        return;
      case TaskPhase::kIdle:
        return;
    }
  }
}

bool FakeCluster::ServersReady(const JobId& job) const {
  const auto table = core_->jobs().RoutingOf(job);
  return table.ok() && std::all_of((*table)->shards.begin(), (*table)->shards.end(),
                                   [&](const ShardRoute& route) {
                                     const size_t index = static_cast<size_t>(route.server);
                                     return HasMade((*table)->servers[index], job, route.term);
                                   });
}

// Applies the SSP rule on every server that is a primary of the job.
bool FakeCluster::MayPull(const FakeTask& task) const {
  const JobPlan& plan = jobs_.at(task.key.job).plan;
  if (plan.consistency.mode == ConsistencyMode::kAsp) return true;
  for (const auto& [name, node] : nodes_) {
    const auto tables = node.tables.find(task.key.job);
    if (!node.alive || tables == node.tables.end() || !IsPrimary(node, task.key.job)) continue;
    for (const auto& [rank, clock] : tables->second.clocks) {
      if (clock.active && clock.clock < task.iterations - options_.staleness_bound) return false;
    }
  }
  return true;
}

void FakeCluster::Pushed(const FakeTask& task) {
  int64_t& replicated = jobs_.at(task.key.job).clocks[{task.key.rank, task.key.incarnation}];
  replicated = std::max(replicated, task.iterations + 1);
  for (auto& [name, node] : nodes_) {
    const auto tables = node.tables.find(task.key.job);
    if (tables == node.tables.end() || !IsPrimary(node, task.key.job)) continue;
    const auto clock = tables->second.clocks.find(task.key.rank);
    if (clock == tables->second.clocks.end() || clock->second.incarnation != task.key.incarnation ||
        !clock->second.active) {
      if (node.alive)
        Fail(absl::StrCat(task.key.job, ": trains, and ", name, " does not count it"));
      continue;
    }
    clock->second.clock = std::max(clock->second.clock, task.iterations + 1);
  }
}

bool FakeCluster::TrainSample(FakeTask& task) {
  if (task.assignment.paused) return false;
  for (const SampleLease& lease : task.assignment.samples) {
    SampleReport& progress = task.samples[lease.id];
    if (progress.position_done >= lease.positions.end) continue;
    if (!MayPull(task)) return false;
    // Servers refuse the push after they have dropped the job's tables.
    if (core_->Job(task.key.job, now_)->ended || dead_.contains(task.key)) return false;
    Pushed(task);
    ++jobs_.at(task.key.job).pushes;
    const int64_t batch = jobs_.at(task.key.job).plan.batch_size;
    const int64_t end = std::min(progress.position_done + batch, lease.positions.end);
    task.totals.samples += end - progress.position_done;
    progress.position_done = end;
    ++task.iterations;
    return true;
  }
  return false;
}

// Trains one iteration of each held slot, as far as the barrier allows.
bool FakeCluster::TrainSlots(FakeTask& task) {
  if (task.assignment.paused || dead_.contains(task.key)) return false;
  JobLedger& ledger = jobs_.at(task.key.job);
  bool moved = false;
  for (const SlotLease& lease : task.assignment.slots) {
    Iteration& next = task.slots[lease.slot];
    if (next >= lease.end) continue;
    if (next.value() < ledger.version) {
      // PAST: the server names the next iteration, which may lie beyond the lease.
      next = Iteration(ledger.version);
      moved = true;
      continue;
    }
    if (next.value() > ledger.version) continue;
    ledger.slots_done[next.value()].insert(lease.slot.value());
    ++ledger.pushes;
    task.totals.samples += ledger.plan.batch_size;
    ++next;
    moved = true;
    auto& done = ledger.slots_done[ledger.version];
    if (static_cast<int>(done.size()) == ledger.plan.consistency.slots) {
      ledger.slots_done.erase(ledger.version);
      ++ledger.version;
    }
  }
  return moved;
}

// ---------------------------------------------------------------- what must hold

void FakeCluster::NoteEvents(const Events& events) {
  for (const Event& event : events) {
    events_.push_back(event);
    if (const auto* placed = std::get_if<TaskPlaced>(&event)) {
      const auto [it, fresh] =
          newest_.insert({{placed->task.job, placed->task.rank}, placed->task});
      if (fresh) continue;
      if (!dead_.contains(it->second))
        Fail(absl::StrCat(placed->task.job, ": two incarnations of a rank"));
      if (placed->task.incarnation <= it->second.incarnation) Fail("an incarnation did not grow");
      it->second = placed->task;
    } else if (const auto* died = std::get_if<TaskDied>(&event)) {
      if (!dead_.insert(died->task).second)
        Fail(absl::StrCat(died->task.job, ": a task died twice"));
    } else if (const auto* ended = std::get_if<CheckpointEnded>(&event)) {
      NoteCheckpoint(*ended);
    } else if (const auto* taken = std::get_if<SnapshotTaken>(&event)) {
      NoteSnapshot(*taken);
    } else if (const auto* left = std::get_if<JobLeft>(&event)) {
      NoteLeft(*left);
    }
  }
}

void FakeCluster::NoteLeft(const JobLeft& left) {
  for (const auto& [name, node] : nodes_) {
    if (!node.alive) continue;
    for (const auto& [key, task] : node.tasks) {
      if (key.job != left.job || task.exited) continue;
      Fail(absl::StrCat(left.job, " is left, and its task ", key.rank.value(), " runs on ", name));
    }
  }
  const auto above = [&left](const auto& each) {
    return each.second.job == left.job && each.second.incarnation > left.last;
  };
  if (std::any_of(newest_.begin(), newest_.end(), above)) Fail("an incarnation above the last");
}

void FakeCluster::NoteLeases(const TaskReply& reply) {
  if (!reply.has_assignment) return;
  const auto call = task_calls_.find(reply.ticket);
  if (call != task_calls_.end()) {
    if (dead_.contains(call->second)) Fail(absl::StrCat(reply.job, ": work for a dead task"));
    Generation& newest = task_generations_[call->second];
    if (reply.assignment.generation < newest) Fail("an assignment's generation decreased");
    newest = reply.assignment.generation;
  }
  if (reply.assignment.phase != TaskPhase::kTrain) return;
  for (const SampleLease& lease : reply.assignment.samples) {
    const int64_t begin = lease.positions.begin;
    jobs_[reply.job].leases.insert(
        {lease.id, {lease.positions, begin, begin, reply.assignment.epoch.value()}});
  }
}

void FakeCluster::NoteReported(const TaskReport& report) {
  JobLedger& ledger = jobs_.at(report.task.job);
  for (const SampleReport& sample : report.samples) {
    const auto it = ledger.leases.find(sample.lease);
    if (it == ledger.leases.end()) continue;  // The lease is for an evaluation.
    it->second.done = std::max(it->second.done, sample.position_done);
  }
}

void FakeCluster::CheckTrained(const JobPlan& plan) {
  const JobLedger& ledger = jobs_.at(plan.id);
  const EpochPlan epochs(plan);
  if (plan.consistency.synchronous()) {
    if (ledger.version != epochs.steps_total()) {
      Fail(absl::StrCat(plan.id, ": ", ledger.version, " iterations of ", epochs.steps_total()));
    }
    return;
  }
  for (int epoch = ledger.resumed.epoch.value(); epoch < epochs.epochs(); ++epoch) {
    std::vector<Range> done;
    if (epoch == ledger.resumed.epoch.value() && ledger.begins_at) {
      // The samples that were trained before the checkpoint count, too.
      int64_t trained = 0;
      for (const Range& range : ledger.resumed.untrained) {
        if (range.begin > trained) done.push_back({trained, range.begin});
        trained = range.end;
      }
      const int64_t samples = epochs.Samples(Epoch(epoch));
      if (trained < samples) done.push_back({trained, samples});
    }
    for (const auto& [id, lease] : ledger.leases) {
      if (lease.epoch == epoch && lease.done > lease.positions.begin) {
        done.push_back({lease.positions.begin, lease.done});
      }
    }
    std::sort(done.begin(), done.end());
    int64_t end = 0;
    for (const Range& range : done) {
      if (range.begin != end) {
        Fail(absl::StrCat(plan.id, " epoch ", epoch, ": positions before ", range.begin,
                          " were reported to ", end));
      }
      end = range.end;
    }
    if (end != epochs.Samples(Epoch(epoch))) Fail(absl::StrCat(plan.id, ": ends at ", end));
  }
}

}  // namespace capstan::scheduler::testing
