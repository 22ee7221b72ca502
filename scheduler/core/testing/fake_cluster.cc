#include "scheduler/core/testing/fake_cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "scheduler/core/testing/replies_of.h"

namespace capstan::scheduler::testing {
namespace {

constexpr absl::Duration kStep = absl::Milliseconds(10);
constexpr absl::Duration kMoving = absl::Milliseconds(20);  // The time that moves a model.

}  // namespace

uint32_t Dice::Below(uint32_t bound) { return PhiloxWord(key_, next_++) % bound; }
bool Dice::Chance(double probability) {
  return probability > 0 && ToUnitFloat(PhiloxWord(key_, next_++)) < probability;
}

FakeCluster::~FakeCluster() = default;

FakeCluster::FakeCluster(const Options& options)
    : options_(options),
      network_(options.network),
      dice_(options.seed),
      core_(std::make_unique<SchedulerCore>(options.core)) {}

void FakeCluster::Fail(const std::string& what) {
  if (error_.empty())
    error_ = absl::StrCat("at ", absl::FormatDuration(now_.SinceOrigin()), ": ", what);
}

// ---------------------------------------------------------------- people

void FakeCluster::AddServer(const std::string& name, const std::vector<PluginRule>& rules) {
  nodes_[name] = FakeNode{.name = name, .role = Role::kServer, .rules = rules};
}

void FakeCluster::AddWorker(const std::string& name, int capacity) {
  nodes_[name] = FakeNode{.name = name, .role = Role::kWorker, .capacity = capacity};
}

void FakeCluster::Kill(const std::string& name) {
  FakeNode& node = nodes_.at(name);
  node.alive = false;
  node.tasks.clear();
  std::vector<StoredShard>& disk = disks_[name];  // Still has the logs of earlier incarnations.
  for (const auto& [job, tables] : node.tables) {
    if (!jobs_.at(job).plan.log) continue;
    for (const ShardRoute& route : tables.routing->shards) {
      const auto mine = [&](int index) {
        return tables.routing->servers[static_cast<size_t>(index)].incarnation == node.incarnation;
      };
      const bool held =
          mine(route.server) || std::any_of(route.replicas.begin(), route.replicas.end(),
                                            [&](const ReplicaRef& r) { return mine(r.server); });
      if (held) disk.push_back({job, route.key, route.term, Position(1), "", node.incarnation});
    }
  }
  if (!node.waiting || !owed_.contains(*node.waiting)) return;
  Actions actions;
  core_->OnSyncBroken(name, node.incarnation, now_, actions);
  Perform(actions);
}

void FakeCluster::Leave(const std::string& name) { nodes_.at(name).leaving = true; }

void FakeCluster::Drain(const std::string& name, bool cancel) {
  if (away_until_) return;
  Actions actions;
  const Ticket ticket(next_ticket_++);
  const absl::Status status =
      core_->DrainNode(ticket, name, cancel, absl::ZeroDuration(), now_, actions);
  // A node that the scheduler does not know cannot be drained.
  const size_t replies = status.ok() ? 1 : 0;
  if (RepliesOf<DrainReply>(actions).size() != replies)
    Fail("a drain call that does not wait is answered");
  Perform(actions);
}

bool FakeCluster::CanLose(const std::string& name) {
  for (const auto& [id, ledger] : jobs_) {
    const auto table = core_->jobs().RoutingOf(id);
    if (Ended(id)) continue;
    if (!table.ok()) return false;  // The job could be placed there before the death is noticed.
    const Routing& routing = **table;
    const auto server_at = [&](int index) { return routing.servers[static_cast<size_t>(index)]; };
    const auto lives = [&](const ServerRef& server) {
      const FakeNode& node = nodes_.at(server.node);
      return node.alive && node.incarnation == server.incarnation && server.node != name;
    };
    for (const ShardRoute& route : routing.shards) {
      std::vector<ServerRef> whole = {server_at(route.server)};
      for (const ReplicaRef& replica : route.replicas) {
        if (replica.in_sync) whole.push_back(server_at(replica.server));
      }
      if (std::any_of(whole.begin(), whole.end(), lives)) continue;
      for (const ServerRef& server : whole) {
        // The server's log holds the shard when the server has initialized it.
        const bool logged = ledger.plan.log && HasMade(server, id, route.term);
        if (server.node == name && nodes_.at(name).alive && !logged) return false;
      }
    }
  }
  return true;
}

bool FakeCluster::HasMade(const ServerRef& server, const JobId& job, Term term) const {
  const FakeNode& node = nodes_.at(server.node);
  const auto tables = node.tables.find(job);
  return node.alive && node.incarnation == server.incarnation && tables != node.tables.end() &&
         tables->second.routing->generation >= Generation(term.value());
}

FakeCluster::FakeTask* FakeCluster::FindTask(const TaskKey& key) {
  for (auto& [name, node] : nodes_) {
    if (const auto it = node.tasks.find(key); it != node.tasks.end()) return &it->second;
  }
  return nullptr;
}

FakeCluster::FakeTask* FakeCluster::FindRank(const JobId& job, int rank) {
  const auto it = newest_.find({job, Rank(rank)});
  FakeTask* task = it == newest_.end() ? nullptr : FindTask(it->second);
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

// ---------------------------------------------------------------- the scheduler's own death

void FakeCluster::KillScheduler(absl::Duration away, Death death) {
  if (death == Death::kInStep) {
    dies_in_step_ = away;
    return;
  }
  owed_.clear();  // These calls get no answer.
  publishes_.clear();
  moves_.clear();
  for (auto& [job, ledger] : jobs_) {
    for (auto& [id, lease] : ledger.leases) lease.done = lease.durable;
  }
  away_until_ = now_ + away;
  Restore();  // Meanwhile the tests see the durable state.
}

void FakeCluster::AwaitScheduler() {
  dies_in_step_.reset();
  while (away_until_ && error_.empty()) Step();
}

Actions FakeCluster::Restore() {
  Actions actions;
  auto core = RestoreCore(store_.Load().value(), options_.core, Now(), actions);
  if (!core.ok()) {
    Fail(core.status().ToString());
  } else {
    core_ = *std::move(core);
  }
  return actions;
}

Moment FakeCluster::Now() const { return {now_, absl::UnixEpoch() + now_.SinceOrigin()}; }

bool FakeCluster::SchedulerAway() {
  if (!away_until_) return false;
  if (now_ < *away_until_) return true;
  away_until_.reset();
  Actions actions = Restore();
  Perform(actions);
  return false;
}

absl::Status FakeCluster::Submit(const JobPlan& plan, const std::optional<RestoreFrom>& restore) {
  Actions actions;
  const absl::Status status = core_->SubmitJob(plan, now_, actions, restore);
  if (status.ok()) {
    JobLedger& ledger = jobs_[plan.id];
    ledger.plan = plan;
    ledger.begins_at = restore;
    if (restore) ledger.resumed = restore->at;
    if (restore) ledger.version = restore->at.iteration.value();
  }
  Perform(actions);
  return status;
}

JobView FakeCluster::View(const JobId& job) { return core_->Job(job, now_).value(); }

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
  SchedulerAway();
  Deliver();
  PublishDue();
  MoveDue();
  if (!away_until_ && core_->NextDeadline() <= now_) {
    Actions actions;
    core_->Tick(now_, actions);
    Perform(actions);
  }
  if (!away_until_ && core_->NextDeadline() <= now_)
    Fail("after Tick(now) a deadline at or before now is left");
  for (auto& [name, node] : nodes_) {
    if (!node.alive) continue;
    std::erase_if(node.tasks, [this](const auto& entry) {
      return entry.second.dying_until && *entry.second.dying_until <= now_;
    });
    TakeCheckpoints(node);
    SyncServerOrDaemon(node);
    for (auto& [key, task] : node.tasks) {
      if (task.exited || task.hung || task.dying_until) continue;
      Work(task);
      SyncTask(task);
    }
  }
  for (auto& [id, ledger] : jobs_) {
    const uint64_t revision = core_->Job(id, now_).value().revision;
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
    Request again = request;  // A second call with the same contents, whose answer is not read.
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
  if (away_until_) return;
  Actions actions;
  const absl::Status status = request.node
                                  ? core_->SyncNode(request.ticket, *request.node, now_, actions)
                                  : core_->SyncTask(request.ticket, *request.task, now_, actions);
  if (status.ok()) {
    owed_.insert(request.ticket);
    if (request.task) NoteReported(*request.task);
  }
  if (!Perform(actions) || status.ok()) return;
  if (request.node) {
    NodeReply refusal{.ticket = request.ticket};
    refusal.status = status;
    TakeReply(refusal);
  } else {
    TaskReply refusal{.ticket = request.ticket};
    refusal.status = status;
    TakeReply(refusal);
    if (absl::IsInvalidArgument(status))
      Fail(absl::StrCat("a true report was refused: ", status.ToString()));
  }
}

void FakeCluster::Answered(Ticket ticket) {
  if (owed_.erase(ticket) == 0)
    Fail(absl::StrCat("ticket ", ticket.value(), " was answered twice"));
}

bool FakeCluster::Perform(Actions& actions) {
  if (const std::optional<absl::Duration> away = std::exchange(dies_in_step_, std::nullopt)) {
    KillScheduler(*away, Death::kBetweenSteps);
    return false;
  }
  if (!store_.Write(EncodeChanges(*core_, actions.changes, Now())).ok()) Fail("the store failed");
  for (CheckpointReply& reply : RepliesOf<CheckpointReply>(actions)) {
    if (reply.id > CheckpointId(0)) checkpoint_replies_.push_back(std::move(reply));
  }
  for (SnapshotReply& reply : RepliesOf<SnapshotReply>(actions)) {
    if (reply.id > CheckpointId(0)) snapshot_replies_.push_back(std::move(reply));
  }
  for (CheckpointPublish& publish : actions.publishes) {
    publishes_.push_back(
        {std::move(publish), now_ + absl::Milliseconds(dice_.Below(options_.publishing_ms))});
  }
  for (const JobId& job : actions.removals) KeepStaying(job);
  for (ModelPublish& model : actions.models) {
    moves_.push_back({std::move(model), now_ + kMoving});
  }
  for (const JobId& job : actions.changes.jobs) {
    for (auto& [id, lease] : jobs_.at(job).leases) lease.durable = lease.done;
  }
  NoteEvents(actions.events);
  for (const NodeReply& reply : RepliesOf<NodeReply>(actions)) {
    Answered(reply.ticket);
    if (!dice_.Chance(network_.lose_reply)) TakeReply(reply);
  }
  for (const TaskReply& reply : RepliesOf<TaskReply>(actions)) {
    Answered(reply.ticket);
    NoteLeases(reply);
    if (!dice_.Chance(network_.lose_reply)) TakeReply(reply);
  }
  return true;
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
    if (away_until_) return;
    Actions actions;
    const NodeInfo info{.name = node.name,
                        .role = node.role,
                        .address = absl::StrCat(node.name, ":1"),
                        .task_capacity = node.capacity,
                        .stored = disks_[node.name],
                        .devices = devices_[node.name],
                        .identity = node.name,
                        .plugin_rules = node.rules};
    const auto registration = core_->Register(info, now_, actions);
    if (!Perform(actions)) return;
    node.registered = true;
    node.incarnation = registration->incarnation;
    node.seen = Generation(0);
    node.tables.clear();
    node.waiting.reset();
  }
  if (node.waiting && now_ < node.give_up) return;
  NodeReport report{
      .node = node.name, .incarnation = node.incarnation, .generation_seen = node.seen};
  report.leaving = node.leaving;
  for (const auto& [job, tables] : node.tables) {
    TableReport table{job, tables.routing->generation, tables.membership.generation, tables.failure,
                      FilledReplicas(node, tables)};
    if (tables.checkpoint) table.checkpoints.push_back(*tables.checkpoint);
    report.tables.push_back(std::move(table));
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
    node.registered = false;  // Its tasks go on until the node learns its desired state.
    return;
  }
  Generation& newest = node_generations_[{node.name, node.incarnation}];
  if (reply.generation < newest) Fail(absl::StrCat(node.name, ": the generation decreased"));
  newest = reply.generation;
  if (node.leaving && reply.may_stop) return Kill(NodeId(node.name));
  if (!reply.changed) return;
  node.seen = reply.generation;
  if (node.role == Role::kServer) {
    ApplyTables(node, reply);
  } else {
    ApplyTasks(node, reply);
  }
}

void FakeCluster::ApplyTables(FakeNode& node, const NodeReply& reply) {
  std::map<JobId, FakeTables> wanted;
  for (const TableAssignment& assignment : reply.tables) {
    const JobId& job = assignment.routing->job;
    Generation& newest = membership_generations_[{job, node.name}];
    if (assignment.membership.generation < newest) Fail(absl::StrCat(job, ": older membership"));
    newest = assignment.membership.generation;
    FakeTables tables = node.tables[job];
    NoteRestore(assignment);
    tables.failure = {};
    if (const auto damaged = damaged_.find(assignment.restore.restore_folder);
        damaged != damaged_.end()) {
      tables.failure = {damaged->second, "its checksum does not match"};
    }
    std::map<Rank, Clock> clocks;
    for (const Member& member : assignment.membership.members) {
      Clock clock = tables.clocks[member.rank];
      const bool same = clock.incarnation == member.incarnation;
      if (member.active && !(same && clock.active)) clock.clock = member.start_iteration.value();
      const auto& replicated = jobs_.at(job).clocks;
      if (const auto it = replicated.find({member.rank, member.incarnation});
          it != replicated.end()) {
        clock.clock = std::max(clock.clock, it->second);
      }
      clock.incarnation = member.incarnation;
      clock.active = member.active;
      clocks[member.rank] = clock;
    }
    if (tables.routing != nullptr && assignment.routing->generation < tables.routing->generation) {
      Fail(absl::StrCat(job, ": older routing table"));
    }
    tables.membership = assignment.membership;
    tables.clocks = std::move(clocks);
    tables.routing = assignment.routing;
    if (tables.order != assignment.checkpoint) {
      tables.order = assignment.checkpoint;
      tables.checkpoint.reset();
      tables.capture_at = now_ + absl::Milliseconds(dice_.Below(50));
    }
    wanted[job] = std::move(tables);
  }
  node.tables = std::move(wanted);
}

void FakeCluster::ApplyTasks(FakeNode& node, const NodeReply& reply) {
  const std::set<TaskKey> wanted(reply.tasks.begin(), reply.tasks.end());
  std::erase_if(node.tasks, [&wanted](const auto& entry) {
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
  ApplyGpus(node, reply);
  if (static_cast<int>(node.tasks.size()) > node.capacity) {
    Fail(absl::StrCat(node.name, " runs ", node.tasks.size(), " tasks in ", node.capacity,
                      " slots"));
  }
}

}  // namespace capstan::scheduler::testing
