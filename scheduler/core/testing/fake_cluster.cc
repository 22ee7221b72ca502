#include "scheduler/core/testing/fake_cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"

namespace capstan::scheduler::testing {
namespace {

constexpr absl::Duration kStep = absl::Milliseconds(10);
constexpr absl::Duration kGiveUp = absl::Seconds(1);  // A call without an answer is sent again.

}  // namespace

uint32_t Dice::Below(uint32_t bound) { return PhiloxWord(key_, next_++) % bound; }
bool Dice::Chance(double probability) {
  return probability > 0 && ToUnitFloat(PhiloxWord(key_, next_++)) < probability;
}

FakeCluster::FakeCluster(const Options& options)
    : options_(options), network_(options.network), dice_(options.seed), core_(options.core) {}

void FakeCluster::Fail(const std::string& what) {
  if (error_.empty()) error_ = absl::StrCat("at ", absl::FormatDuration(now_.SinceOrigin()), ": ", what);
}

// ---------------------------------------------------------------- people

void FakeCluster::AddServer(const std::string& name) {
  nodes_[name] = FakeNode{.name = name, .role = Role::kServer};
}

void FakeCluster::AddWorker(const std::string& name, int capacity) {
  nodes_[name] = FakeNode{.name = name, .role = Role::kWorker, .capacity = capacity};
}

void FakeCluster::Kill(const std::string& name) {
  FakeNode& node = nodes_.at(name);
  node.alive = false;
  node.tasks.clear();
}

FakeCluster::FakeTask* FakeCluster::FindTask(const TaskKey& key) {
  for (auto& [name, node] : nodes_) {
    if (const auto it = node.tasks.find(key); it != node.tasks.end()) return &it->second;
  }
  return nullptr;
}

FakeCluster::FakeTask* FakeCluster::FindRank(const JobId& job, int rank) {
  const auto it = lives_.find({job, Rank(rank)});
  FakeTask* task = it == lives_.end() ? nullptr : FindTask(it->second);
  return task == nullptr || task->exited ? nullptr : task;
}

void FakeCluster::CrashTask(const JobId& job, int rank) {
  if (FakeTask* task = FindRank(job, rank)) {
    task->exited = true;
    task->exit = {.exit_code = 0, .signal = 11, .last_lines = "segmentation fault"};
  }
}

void FakeCluster::HangTask(const JobId& job, int rank) {
  if (FakeTask* task = FindRank(job, rank)) task->hung = true;
}

void FakeCluster::SlowTask(const JobId& job, int rank) {
  if (FakeTask* task = FindRank(job, rank)) task->slow = true;
}

absl::Status FakeCluster::Submit(const JobPlan& plan) {
  Actions actions;
  const absl::Status status = core_.SubmitJob(plan, now_, actions);
  if (status.ok()) jobs_[plan.id].plan = plan;
  Perform(actions);
  return status;
}

JobView FakeCluster::View(const JobId& job) { return core_.Job(job, now_).value(); }

std::vector<std::pair<JobId, int>> FakeCluster::RunningTasks() const {
  std::vector<std::pair<JobId, int>> running;
  for (const auto& [name, node] : nodes_) {
    for (const auto& [key, task] : node.tasks) {
      if (!task.exited && !task.dying_until) running.push_back({key.job, key.rank.value()});
    }
  }
  return running;
}

std::vector<std::string> FakeCluster::AliveNodes(Role role) const {
  std::vector<std::string> names;
  for (const auto& [name, node] : nodes_) {
    if (node.alive && node.role == role) names.push_back(name);
  }
  return names;
}

// ---------------------------------------------------------------- time

void FakeCluster::Run(absl::Duration duration) {
  const Instant end = now_ + duration;
  while (now_ < end && error_.empty()) Step();
}

bool FakeCluster::RunUntil(const std::function<bool()>& done, absl::Duration limit) {
  const Instant end = now_ + limit;
  while (now_ < end && error_.empty()) {
    if (done()) return true;
    Step();
  }
  return done();
}

void FakeCluster::Step() {
  now_ = now_ + kStep;
  Deliver();
  if (core_.NextDeadline() <= now_) {
    Actions actions;
    core_.Tick(now_, actions);
    Perform(actions);
  }
  if (core_.NextDeadline() <= now_) Fail("after Tick(now) a deadline at or before now is left");
  for (auto& [name, node] : nodes_) {
    if (!node.alive) continue;
    absl::erase_if(node.tasks, [this](const auto& entry) {
      return entry.second.dying_until && *entry.second.dying_until <= now_;
    });
    SyncServerOrDaemon(node);
    for (auto& [key, task] : node.tasks) {
      if (task.exited || task.hung || task.dying_until) continue;
      Work(task);
      SyncTask(task);
    }
  }
  for (auto& [id, ledger] : jobs_) {
    const uint64_t revision = core_.Job(id, now_).value().revision;
    if (revision < ledger.revision) Fail(absl::StrCat(id, ": the revision decreased"));
    ledger.revision = revision;
  }
}

// ---------------------------------------------------------------- messages

void FakeCluster::Send(Request request) {
  request.arrives = now_ + kStep;
  if (dice_.Chance(network_.delay)) {
    request.arrives = now_ + absl::Milliseconds(10 + dice_.Below(1000));
  }
  if (dice_.Chance(network_.repeat)) {
    Request again = request;  // A second call with the same contents; nobody reads its answer.
    again.ticket = Ticket(next_ticket_++);
    again.arrives = now_ + absl::Milliseconds(10 + dice_.Below(1000));
    flying_.push_back(std::move(again));
  }
  if (!dice_.Chance(network_.lose_request)) flying_.push_back(std::move(request));
}

void FakeCluster::Deliver() {
  std::vector<Request> arrived;
  for (auto it = flying_.begin(); it != flying_.end();) {
    if (it->arrives > now_) {
      ++it;
      continue;
    }
    arrived.push_back(std::move(*it));
    it = flying_.erase(it);
  }
  for (const Request& request : arrived) DeliverOne(request);
}

void FakeCluster::DeliverOne(const Request& request) {
  Actions actions;
  const absl::Status status = request.node ? core_.SyncNode(request.ticket, *request.node, now_, actions)
                                           : core_.SyncTask(request.ticket, *request.task, now_, actions);
  if (status.ok()) {
    owed_.insert(request.ticket);
    if (request.task) NoteReported(*request.task);
  }
  Perform(actions);
  if (status.ok()) return;
  if (request.node) {
    NodeReply refusal{.ticket = request.ticket};
    refusal.status = status;
    TakeReply(refusal);
  } else {
    TaskReply refusal{.ticket = request.ticket};
    refusal.status = status;
    TakeReply(refusal);
    if (absl::IsInvalidArgument(status)) Fail(absl::StrCat("a true report was refused: ", status.ToString()));
  }
}

void FakeCluster::Answered(Ticket ticket) {
  if (owed_.erase(ticket) == 0) Fail(absl::StrCat("ticket ", ticket.value(), " was answered twice"));
}

void FakeCluster::Perform(Actions& actions) {
  NoteEvents(actions.events);
  for (const NodeReply& reply : actions.node_replies) {
    Answered(reply.ticket);
    if (!dice_.Chance(network_.lose_reply)) TakeReply(reply);
  }
  for (const TaskReply& reply : actions.task_replies) {
    Answered(reply.ticket);
    NoteLeases(reply);
    if (!dice_.Chance(network_.lose_reply)) TakeReply(reply);
  }
}

void FakeCluster::CheckAllAnswered() {
  for (auto& [name, node] : nodes_) node.alive = false;
  flying_.clear();
  Run(absl::Seconds(2));
  if (!owed_.empty()) Fail(absl::StrCat(owed_.size(), " calls were never answered"));
}

// ---------------------------------------------------------------- daemons

void FakeCluster::SyncServerOrDaemon(FakeNode& node) {
  if (!node.registered) {
    Actions actions;
    const NodeInfo info{.name = node.name,
                        .role = node.role,
                        .address = absl::StrCat(node.name, ":1"),
                        .task_capacity = node.capacity};
    const auto registration = core_.Register(info, now_, actions);
    node.registered = true;
    node.incarnation = registration->incarnation;
    node.seen = Generation(0);
    node.tables.clear();
    node.waiting.reset();
    Perform(actions);
  }
  if (node.waiting && now_ < node.give_up) return;
  NodeReport report{.node = node.name, .incarnation = node.incarnation, .generation_seen = node.seen};
  for (const auto& [job, tables] : node.tables) {
    report.tables.push_back({job, Generation(1), tables.membership.generation, {}});
  }
  for (const auto& [key, task] : node.tasks) report.tasks.push_back({key, task.exited, task.exit});
  Request request{.ticket = Ticket(next_ticket_++), .node = std::move(report)};
  node.waiting = request.ticket;
  node.give_up = now_ + kGiveUp;
  node_calls_[request.ticket] = node.name;
  Send(std::move(request));
}

void FakeCluster::TakeReply(const NodeReply& reply) {
  const auto call = node_calls_.find(reply.ticket);
  if (call == node_calls_.end()) return;
  FakeNode& node = nodes_.at(call->second);
  node_calls_.erase(call);
  if (!node.alive || node.waiting != reply.ticket) return;
  node.waiting.reset();
  if (!reply.status.ok()) {
    node.registered = false;  // Its tasks go on until it learns what it is to run.
    return;
  }
  Generation& newest = node_generations_[{node.name, node.incarnation}];
  if (reply.generation < newest) Fail(absl::StrCat(node.name, ": the generation decreased"));
  newest = reply.generation;
  if (!reply.changed) return;
  node.seen = reply.generation;
  if (node.role == Role::kServer) {
    ApplyTables(node, reply);
  } else {
    ApplyTasks(node, reply);
  }
}

void FakeCluster::ApplyTables(FakeNode& node, const NodeReply& reply) {
  absl::btree_map<JobId, FakeTables> wanted;
  for (const TableAssignment& assignment : reply.tables) {
    const JobId& job = assignment.routing->job;
    Generation& newest = membership_generations_[{job, node.name}];
    if (assignment.membership.generation < newest) Fail(absl::StrCat(job, ": older membership"));
    newest = assignment.membership.generation;
    FakeTables tables = node.tables[job];
    absl::btree_map<Rank, Clock> clocks;
    for (const Member& member : assignment.membership.members) {
      Clock clock = tables.clocks[member.rank];
      const bool same = clock.incarnation == member.incarnation;
      if (member.active && !(same && clock.active)) clock.clock = member.start_iteration.value();
      clock.incarnation = member.incarnation;
      clock.active = member.active;
      clocks[member.rank] = clock;
    }
    wanted[job] = {assignment.membership, std::move(clocks)};
  }
  node.tables = std::move(wanted);
}

void FakeCluster::ApplyTasks(FakeNode& node, const NodeReply& reply) {
  const absl::btree_set<TaskKey> wanted(reply.tasks.begin(), reply.tasks.end());
  absl::erase_if(node.tasks, [&wanted](const auto& entry) {
    return entry.second.exited && !wanted.contains(entry.first);
  });
  for (auto& [key, task] : node.tasks) {
    if (wanted.contains(key) || task.dying_until) continue;
    task.dying_until = now_ + absl::Milliseconds(dice_.Below(500));
  }
  for (const TaskKey& key : wanted) {
    if (node.tasks.contains(key)) continue;
    if (dead_.contains(key)) Fail(absl::StrCat(key.job, ": a dead task is to be run"));
    node.tasks[key] = FakeTask{.key = key, .node = node.name};
  }
  if (static_cast<int>(node.tasks.size()) > node.capacity) {
    Fail(absl::StrCat(node.name, " runs ", node.tasks.size(), " tasks in ", node.capacity, " slots"));
  }
}

// ---------------------------------------------------------------- tasks

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
  if (reply.routing != nullptr) task->routing_seen = reply.routing->generation;
  if (!reply.has_assignment) return;
  if (reply.assignment.generation <= task->assignment.generation) {
    Fail("an assignment that is not newer");
  }
  TakeAssignment(*task, reply.assignment);
}

void FakeCluster::TakeAssignment(FakeTask& task, const Assignment& assignment) {
  absl::btree_map<LeaseId, SampleReport> samples;
  for (const SampleLease& lease : assignment.samples) {
    const auto known = task.samples.find(lease.id);
    samples[lease.id] = known != task.samples.end()
                            ? known->second
                            : SampleReport{.lease = lease.id, .position_done = lease.positions.begin};
  }
  absl::btree_map<SlotId, Iteration> slots;
  for (const SlotLease& lease : assignment.slots) {
    const auto known = task.slots.find(lease.slot);
    const Iteration next = known == task.slots.end() ? lease.begin : std::max(known->second, lease.begin);
    slots[lease.slot] = next;
  }
  task.samples = std::move(samples);
  task.slots = std::move(slots);
  task.iterations = std::max(task.iterations, assignment.start_iteration.value());
  task.exported = false;
  task.assignment = assignment;
}

bool FakeCluster::AllDone(const FakeTask& task) const {
  for (const SampleLease& lease : task.assignment.samples) {
    if (task.samples.at(lease.id).position_done < lease.positions.end) return false;
  }
  for (const SlotLease& lease : task.assignment.slots) {
    if (task.slots.at(lease.slot) < lease.end) return false;
  }
  return true;
}

void FakeCluster::Work(FakeTask& task) {
  if (now_ < task.ready) return;
  const int batches = task.slow ? 1 : options_.batches_per_step;
  if (task.slow) task.ready = now_ + absl::Milliseconds(100);
  for (int i = 0; i < batches; ++i) {
    switch (task.assignment.phase) {
      case TaskPhase::kTrain:
        if (!(task.assignment.slots.empty() ? TrainSample(task) : TrainSlots(task))) return;
        break;
      case TaskPhase::kEvaluate:
        for (const SampleLease& lease : task.assignment.samples) {
          const double size = static_cast<double>(lease.positions.size());
          task.samples[lease.id] = {lease.id, lease.positions.end, size * 0.5, lease.positions.size()};
        }
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

// The rule of SSP on every server that holds the job.
bool FakeCluster::MayPull(const FakeTask& task) const {
  const JobPlan& plan = jobs_.at(task.key.job).plan;
  if (plan.mode == Mode::kAsp) return true;
  for (const auto& [name, node] : nodes_) {
    const auto tables = node.tables.find(task.key.job);
    if (!node.alive || tables == node.tables.end()) continue;
    for (const auto& [rank, clock] : tables->second.clocks) {
      if (clock.active && clock.clock < task.iterations - options_.staleness_bound) return false;
    }
  }
  return true;
}

void FakeCluster::Pushed(const FakeTask& task) {
  for (auto& [name, node] : nodes_) {
    const auto tables = node.tables.find(task.key.job);
    if (tables == node.tables.end()) continue;
    const auto clock = tables->second.clocks.find(task.key.rank);
    if (clock == tables->second.clocks.end() || clock->second.incarnation != task.key.incarnation ||
        !clock->second.active) {
      if (node.alive) Fail(absl::StrCat(task.key.job, ": trains, and ", name, " does not count it"));
      continue;
    }
    clock->second.clock = std::max(clock->second.clock, task.iterations + 1);
  }
}

bool FakeCluster::TrainSample(FakeTask& task) {
  for (const SampleLease& lease : task.assignment.samples) {
    SampleReport& progress = task.samples[lease.id];
    if (progress.position_done >= lease.positions.end) continue;
    if (!MayPull(task)) return false;
    // Servers that dropped the job's tables refuse the push.
    if (core_.Job(task.key.job, now_)->ended || dead_.contains(task.key)) return false;
    Pushed(task);
    const int64_t batch = jobs_.at(task.key.job).plan.batch_size;
    const int64_t end = std::min(progress.position_done + batch, lease.positions.end);
    task.totals.samples += end - progress.position_done;
    progress.position_done = end;
    ++task.iterations;
    return true;
  }
  return false;
}

// One iteration of every slot held, as far as the barrier allows.
bool FakeCluster::TrainSlots(FakeTask& task) {
  JobLedger& ledger = jobs_.at(task.key.job);
  bool moved = false;
  for (const SlotLease& lease : task.assignment.slots) {
    Iteration& next = task.slots[lease.slot];
    if (next >= lease.end) continue;
    if (next.value() < ledger.version) {
      next = std::min(lease.end, Iteration(ledger.version));  // PAST: the server names where to go on.
      moved = true;
      continue;
    }
    if (next.value() > ledger.version) continue;
    ledger.slots_done[next.value()].insert(lease.slot.value());
    task.totals.samples += ledger.plan.batch_size;
    ++next;
    moved = true;
    auto& done = ledger.slots_done[ledger.version];
    if (static_cast<int>(done.size()) == ledger.plan.slots) {
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
      const auto [it, fresh] = lives_.insert({{placed->task.job, placed->task.rank}, placed->task});
      if (fresh) continue;
      if (!dead_.contains(it->second)) Fail(absl::StrCat(placed->task.job, ": two lives of a rank"));
      if (placed->task.incarnation <= it->second.incarnation) Fail("an incarnation did not grow");
      it->second = placed->task;
    } else if (const auto* died = std::get_if<TaskDied>(&event)) {
      if (!dead_.insert(died->task).second) Fail(absl::StrCat(died->task.job, ": a task died twice"));
    }
  }
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
    jobs_[reply.job].leases.insert(
        {lease.id, {lease.positions, lease.positions.begin, reply.assignment.epoch.value()}});
  }
}

void FakeCluster::NoteReported(const TaskReport& report) {
  JobLedger& ledger = jobs_.at(report.task.job);
  for (const SampleReport& sample : report.samples) {
    const auto it = ledger.leases.find(sample.lease);
    if (it == ledger.leases.end()) continue;  // Of an evaluation.
    it->second.done = std::max(it->second.done, sample.position_done);
  }
}

void FakeCluster::CheckTrained(const JobPlan& plan) {
  const JobLedger& ledger = jobs_.at(plan.id);
  const EpochPlan epochs(plan);
  if (plan.mode == Mode::kBsp) {
    if (ledger.version != epochs.steps_total()) {
      Fail(absl::StrCat(plan.id, ": ", ledger.version, " iterations of ", epochs.steps_total()));
    }
    return;
  }
  for (int epoch = 0; epoch < epochs.epochs(); ++epoch) {
    std::vector<Range> done;
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
