#include "tests/simulation/shells/sim_scheduler.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "scheduler/admission/admitted_codec.h"
#include "scheduler/checkpoint/job_checkpoint.h"
#include "scheduler/codec/node_codec.h"
#include "scheduler/codec/status_codec.h"
#include "scheduler/codec/task_codec.h"
#include "scheduler/store/state_codec.h"
#include "tests/simulation/network/methods.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kCommitMin =
    absl::Microseconds(100);  // Shortest transaction of the store.
constexpr absl::Duration kCommitMax = absl::Milliseconds(8);
// A real scheduler's incarnations begin at the time in milliseconds, far from those of the one
// before.
constexpr uint64_t kIncarnationsApart = 100'000;
constexpr uint64_t kStoreStream = 46;
constexpr int kWakeupsMax = 2000;  // By deadlines, in a second.

Moment MomentNow(const Process& process) {
  const Instant now = process.Now();
  return {now, absl::UnixEpoch() + now.SinceOrigin()};
}

// " table/shard: primary replica (being filled) ..." of each shard.
std::string HomesOf(const scheduler::SchedulerCore& core, const JobId& job) {
  const auto routing = core.jobs().RoutingOf(job);
  std::string homes;
  if (!routing.ok()) return homes;
  const auto name = [&](int index) { return (*routing)->servers[static_cast<size_t>(index)].node; };
  for (const scheduler::ShardRoute& shard : (*routing)->shards) {
    absl::StrAppend(&homes, "; ", shard.key.table.value(), "/", shard.key.shard.value(), ": ",
                    name(shard.server));
    for (const scheduler::ReplicaRef& replica : shard.replicas) {
      absl::StrAppend(&homes, replica.in_sync ? " " : " filling ", name(replica.server));
    }
  }
  return homes;
}

absl::Status Unreadable() { return absl::InternalError("unreadable message"); }

}  // namespace

SimScheduler::~SimScheduler() = default;

SimScheduler::SimScheduler(World* world, SimNetwork::HostId host, HostClock* clock)
    : world_(world),
      process_("scheduler", &world->loop, clock),
      endpoint_(world->network.AddEndpoint(host, &process_)),
      store_(std::make_unique<scheduler::MemoryStore>()),
      store_prng_(Prng(world->options.seed).Fork(kStoreStream)) {
  world_->scheduler = endpoint_;
  world_->network.SetHandler(endpoint_, [this](const Call& call) { Handle(call); });
  for (const auto& job : world_->jobs) {
    if (job->options.submit_after == absl::ZeroDuration()) continue;  // At the start.
    world_->loop.After(job->options.submit_after,
                       [this] { process_.Arrive([this] { SubmitDue(); }); });
  }
  process_.set_on_kill([this] {
    world_->network.EndpointDied(endpoint_);
    if (committing_) ++world_->reached[Reached::kSchedulerKilledInCommit];
    core_.reset();
    jobs_.clear();
    steps_.clear();
    committing_ = false;
    models_moved_ = 0;
    calls_.clear();
    held_.clear();
    connections_.clear();
    tasks_.clear();
    drains_.clear();
    timer_ = 0;
  });
}

void SimScheduler::Start() {
  const bool again = process_.incarnation() > 0;
  process_.Start();
  const scheduler::StoreRows rows = store_->Load().value();
  scheduler::Actions actions;
  scheduler::SchedulerCore::Options options{.number = process_.incarnation()};
  if (world_->options.chaos.put_back_store != absl::InfiniteDuration()) {
    options.first_incarnation = Incarnation(kIncarnationsApart * process_.incarnation());
  }
  auto core = scheduler::RestoreCore(rows, options, MomentNow(process_), actions);
  auto jobs = scheduler::DecodeAdmitted(rows);
  if (!core.ok() || !jobs.ok()) {
    world_->failure =
        absl::StrCat("the scheduler cannot restore its state: ", core.status().ToString(),
                     jobs.status().ToString());
    return process_.Kill();
  }
  core_ = *std::move(core);
  jobs_ = *std::move(jobs);
  if (again) {
    ++world_->reached[Reached::kSchedulerRestored];
    world_->trace.Narrate("scheduler: restored from its store");
    world_->Tell([](Checker& checker) { checker.SchedulerRestarted(); });
  }
  Commit(std::move(actions));
  SubmitDue();
}

void SimScheduler::Commit(scheduler::Actions actions, std::vector<scheduler::StoreWrite> writes,
                          std::function<void()> then) {
  for (scheduler::StoreWrite& write :
       scheduler::EncodeChanges(*core_, actions.changes, MomentNow(process_))) {
    writes.push_back(std::move(write));
  }
  for (const scheduler::Reply& reply : actions.replies) {
    if (const auto* node = std::get_if<scheduler::NodeReply>(&reply)) held_.erase(node->ticket);
  }
  Arm();
  if (writes.empty() && steps_.empty()) {
    Perform(actions);
    if (then) then();
    return;
  }
  steps_.push_back({std::move(actions), std::move(writes), std::move(then)});
  if (committing_) return;
  committing_ = true;
  process_.After(world_->prng.Between(kCommitMin, kCommitMax), [this] { CommitGathered(); });
}

void SimScheduler::CommitGathered() {
  committing_ = false;
  std::vector<Step> steps;
  steps.swap(steps_);
  std::vector<scheduler::StoreWrite> writes;
  for (Step& step : steps) {
    for (scheduler::StoreWrite& write : step.writes) writes.push_back(std::move(write));
  }
  if (!WriteStore(writes, steps)) return;
  for (const Step& step : steps) {
    Perform(step.actions);
    if (step.then) step.then();
  }
}

void SimScheduler::Handle(const Call& call) {
  absl::Status status = absl::UnimplementedError("no such method");
  if (call->method == kRegister) status = Register(call);
  if (call->method == kSyncNode) status = SyncNode(call);
  if (call->method == kHoldConnection) status = HoldConnection(call);
  if (call->method == kSyncTask) status = SyncTask(call);
  if (call->method == kOpenSnapshot) status = OpenSnapshot(call);
  if (!status.ok()) call->Answer(status, "");
}

absl::Status SimScheduler::Register(const Call& call) {
  v1::RegisterRequest request;
  if (!request.ParseFromString(call->bytes)) return Unreadable();
  CAPSTAN_ASSIGN_OR_RETURN(const scheduler::NodeInfo info, scheduler::DecodeNodeInfo(request));
  scheduler::Actions actions;
  const auto registration = core_->Register(info, process_.Now(), actions);
  CAPSTAN_RETURN_IF_ERROR(registration.status());
  v1::RegisterResponse response;
  scheduler::EncodeRegistration(*registration, response);
  Commit(std::move(actions), {},
         [call, answer = response.SerializeAsString()] { call->Answer(absl::OkStatus(), answer); });
  return absl::OkStatus();
}

absl::Status SimScheduler::SyncNode(const Call& call) {
  v1::SyncNodeRequest request;
  if (!request.ParseFromString(call->bytes)) return Unreadable();
  CAPSTAN_ASSIGN_OR_RETURN(const scheduler::NodeReport report,
                           scheduler::DecodeNodeReport(request));
  const scheduler::Ticket ticket(next_ticket_++);
  calls_[ticket] = call;
  scheduler::Actions actions;
  const absl::Status status = core_->SyncNode(ticket, report, process_.Now(), actions);
  if (!status.ok()) calls_.erase(ticket);
  if (status.ok()) held_.insert(ticket);
  call->on_cancel = [this, ticket, node = report.node, incarnation = report.incarnation] {
    if (!held_.contains(ticket)) return;
    scheduler::Actions broken;
    core_->OnSyncBroken(node, incarnation, process_.Now(), broken);
    Commit(std::move(broken));
  };
  Commit(std::move(actions));
  return status;
}

absl::Status SimScheduler::HoldConnection(const Call& call) {
  v1::HoldConnectionRequest request;
  if (!request.ParseFromString(call->bytes)) return Unreadable();
  const NodeId node = request.node_id();
  const Incarnation incarnation(request.incarnation());
  const std::vector<scheduler::NodeView> nodes = core_->Nodes();
  const bool live = std::any_of(nodes.begin(), nodes.end(), [&](const scheduler::NodeView& each) {
    return each.alive && each.id == node && each.incarnation == incarnation;
  });
  if (!live) return absl::NotFoundError("no such incarnation");
  const scheduler::Ticket ticket(next_ticket_++);
  const Connection before = std::exchange(connections_[node], {ticket, incarnation, call});
  if (before.call != nullptr) before.call->Answer(absl::CancelledError("connected anew"), "");
  call->on_cancel = [this, ticket, node, incarnation] {
    const auto connection = connections_.find(node);
    if (connection == connections_.end() || connection->second.ticket != ticket) return;
    connections_.erase(connection);
    scheduler::Actions broken;
    core_->OnSyncBroken(node, incarnation, process_.Now(), broken);
    Commit(std::move(broken));
  };
  return absl::OkStatus();
}

void SimScheduler::EndConnection(const scheduler::NodeDied& died) {
  const auto connection = connections_.find(died.node);
  if (connection == connections_.end() || connection->second.incarnation != died.incarnation)
    return;
  connection->second.call->Answer(absl::AbortedError("the node's incarnation is over"), "");
  connections_.erase(connection);
}

absl::Status SimScheduler::SyncTask(const Call& call) {
  v1::SyncTaskRequest request;
  if (!request.ParseFromString(call->bytes)) return Unreadable();
  CAPSTAN_ASSIGN_OR_RETURN(const scheduler::TaskReport report,
                           scheduler::DecodeTaskReport(request));
  const scheduler::Ticket ticket(next_ticket_++);
  calls_[ticket] = call;
  tasks_[ticket] = report.task;
  scheduler::Actions actions;
  const absl::Status status = core_->SyncTask(ticket, report, process_.Now(), actions);
  if (status.ok()) {
    world_->JobOf(report.task.job).Tell([&](Checker& checker) { checker.ReportTaken(report); });
  } else {
    calls_.erase(ticket);
    tasks_.erase(ticket);
  }
  Commit(std::move(actions));
  return status;
}

absl::Status SimScheduler::OpenSnapshot(const Call& call) {
  v1::OpenSnapshotRequest request;
  if (!request.ParseFromString(call->bytes)) return Unreadable();
  const scheduler::Ticket ticket(next_ticket_++);
  calls_[ticket] = call;
  scheduler::Actions actions;
  const absl::Status status =
      core_->OpenSnapshot(ticket, request.job_id(), request.reader(),
                          absl::Milliseconds(request.wait_limit_ms()), process_.Now(), actions);
  if (!status.ok()) calls_.erase(ticket);
  Commit(std::move(actions));
  if (status.ok() && world_->on_snapshot_asked) world_->on_snapshot_asked();
  return status;
}

void SimScheduler::Answer(const scheduler::SnapshotReply& reply) {
  const auto call = calls_.extract(reply.ticket);
  if (call.empty()) return;
  v1::OpenSnapshotResponse response;
  if (reply.routing != nullptr) {
    scheduler::EncodeSnapshotReply(reply, *jobs_.at(reply.job), response);
  }
  call.mapped()->Answer(reply.status, response.SerializeAsString());
}

void SimScheduler::Perform(const scheduler::Actions& actions) {
  for (const scheduler::Event& event : actions.events) Note(event);
  for (const scheduler::CheckpointPublish& publish : actions.publishes) Publish(publish);
  for (const JobId& job : actions.removals) {
    scheduler::RemoveCheckpoints(world_->shared_disk, core_->jobs().CheckpointsToRemove(job));
    world_->LookAtSharedDisk();
  }
  for (const scheduler::ModelPublish& publish : actions.models) Publish(publish);
  for (const scheduler::Reply& reply : actions.replies) {
    std::visit([this](const auto& each) { Answer(each); }, reply);
  }
}

void SimScheduler::Publish(const scheduler::CheckpointPublish& publish) {
  process_.After(world_->prng.Between(kCommitMin, kCommitMax), [this, publish] {
    const absl::Status status =
        scheduler::PublishCheckpoint(world_->shared_disk, publish, *jobs_.at(publish.job), 0);
    world_->LookAtSharedDisk();
    const bool rests = std::any_of(
        publish.parts.begin(), publish.parts.end(),
        [](const scheduler::CheckpointPart& part) { return part.base != CheckpointId(0); });
    if (status.ok() && rests) incremental_.insert(publish.folder);
    if (status.ok() && rests) ++world_->reached[Reached::kCheckpointIncremental];
    scheduler::Actions actions;
    core_->CheckpointPublished(publish.job, publish.id, status, process_.Now(), actions);
    Commit(std::move(actions));
  });
}

void SimScheduler::Publish(const scheduler::ModelPublish& publish) {
  const bool reached = !world_->options.left_to_task;
  // If the scheduler does not reach the model, it can still be lost with its writer.
  JobWorld& job = world_->JobOf(publish.exporter.job);
  if (reached) job.Tell([](Checker& checker) { checker.ModelIsWhole(); });
  absl::Duration time = world_->prng.Between(kCommitMin, kCommitMax);
  if (world_->options.move_max > absl::ZeroDuration()) {
    time += world_->prng.Between(absl::ZeroDuration(), world_->options.move_max);
  }
  ++models_moved_;
  if (reached && world_->on_model_moves) world_->on_model_moves();
  process_.After(time, [this, publish, reached] {
    --models_moved_;
    if (!core_->jobs().AwaitsModel(publish.exporter)) return;
    if (reached) Move(publish);
    scheduler::Actions actions;
    core_->ModelPublished(publish.exporter,
                          reached ? absl::OkStatus() : absl::NotFoundError("no such folder here"),
                          process_.Now(), actions);
    Commit(std::move(actions));
  });
}

void SimScheduler::Move(const scheduler::ModelPublish& publish) {
  const absl::Status published =
      world_->JobOf(publish.exporter.job).PublishModel(publish.staged, publish.exporter);
  if (!published.ok()) world_->failure = std::string(published.message());
}

void SimScheduler::Answer(const scheduler::NodeReply& reply) {
  for (const scheduler::TableAssignment& table : reply.tables) {
    NoteRouting(*table.routing);
    world_->JobOf(table.routing->job).Tell([&](Checker& checker) {
      checker.RoutingSent(*table.routing);
      checker.MembershipSent(table.routing->job, table.membership);
    });
  }
  const auto call = calls_.extract(reply.ticket);
  if (call.empty()) return;
  v1::SyncNodeResponse response;
  if (reply.status.ok()) scheduler::EncodeNodeReply(reply, jobs_, {}, response);
  call.mapped()->Answer(reply.status, response.SerializeAsString());
}

void SimScheduler::NoteRouting(const scheduler::Routing& routing) {
  JobWorld& job = world_->JobOf(routing.job);
  if (routing.generation > job.routing.generation) job.routing = routing;
}

void SimScheduler::Answer(const scheduler::TaskReply& reply) {
  const auto call = calls_.extract(reply.ticket);
  const auto task = tasks_.extract(reply.ticket);
  if (call.empty()) return;
  v1::SyncTaskResponse response;
  if (reply.status.ok()) scheduler::EncodeTaskReply(reply, *jobs_.at(reply.job), response);
  JobWorld& job = world_->JobOf(reply.job);
  if (reply.has_assignment) {
    job.Tell([&](Checker& checker) { checker.Assigned(task.mapped(), reply.assignment); });
  }
  if (reply.routing != nullptr) {
    NoteRouting(*reply.routing);
    job.Tell([&](Checker& checker) { checker.RoutingSent(*reply.routing); });
  }
  call.mapped()->Answer(reply.status, response.SerializeAsString());
}

void SimScheduler::NoteMoves(const scheduler::RoutingChanged& moved) {
  if (moved.promoted > 0) ++world_->reached[Reached::kReplicaPromoted];
  if (moved.filling > 0) ++world_->reached[Reached::kReplicaFilling];
  for (const scheduler::PrimaryMove& move : moved.moves) {
    if (move.swapped > 0) ++world_->reached[Reached::kPrimarySwapped];
  }
  world_->trace.Narrate(absl::StrCat("scheduler: ", moved.job, " has routing generation ",
                                     moved.generation.value(), ": ", moved.promoted, " promoted, ",
                                     moved.filling, " being filled", HomesOf(*core_, moved.job)));
}

void SimScheduler::Note(const scheduler::Event& event) {
  TellCheckers(event);
  world_->trace.Event({event.index()});
  if (const auto* died = std::get_if<scheduler::NodeDied>(&event)) {
    EndConnection(*died);
    const bool server = died->node.rfind("server", 0) == 0;
    ++world_->reached[server ? Reached::kServerDied : Reached::kWorkerDaemonDied];
    if (server && models_moved_ > 0) ++world_->reached[Reached::kServerDiedWhileMoving];
    world_->trace.Narrate(absl::StrCat("scheduler: ", died->node, " is dead: ", died->why));
  } else if (const auto* joined = std::get_if<scheduler::NodeJoined>(&event)) {
    if (joined->incarnation.value() > static_cast<uint64_t>(world_->options.servers) +
                                          static_cast<uint64_t>(world_->options.workers)) {
      ++world_->reached[Reached::kNodeNewIncarnation];
    }
    world_->trace.Narrate(absl::StrCat("scheduler: ", joined->node, " joined as incarnation ",
                                       joined->incarnation.value()));
  } else if (const auto* placed = std::get_if<scheduler::TaskPlaced>(&event)) {
    if (placed->restart) ++world_->reached[Reached::kTaskReplaced];
    world_->trace.Narrate(absl::StrCat("scheduler: task ", placed->task.rank.value(), "/",
                                       placed->task.incarnation.value(), " of ", placed->task.job,
                                       " is placed on ", placed->node));
  } else if (const auto* lost = std::get_if<scheduler::TaskDied>(&event)) {
    if (lost->counted) ++world_->reached[Reached::kTaskCrashCounted];
    world_->trace.Narrate(absl::StrCat("scheduler: task ", lost->task.rank.value(), "/",
                                       lost->task.incarnation.value(),
                                       " is dead: ", lost->failure.message));
  } else if (const auto* phase = std::get_if<scheduler::PhaseStarted>(&event)) {
    if (phase->phase == scheduler::JobPhase::kRecovering) {
      ++world_->reached[Reached::kJobRecovering];
    }
    world_->trace.Narrate(absl::StrCat("scheduler: ", phase->job, " is in phase ",
                                       static_cast<int>(phase->phase), " of epoch ",
                                       phase->epoch.value()));
  } else if (const auto* moved = std::get_if<scheduler::RoutingChanged>(&event)) {
    NoteMoves(*moved);
  } else if (const auto* saved = std::get_if<scheduler::CheckpointEnded>(&event)) {
    // The event has no id if a server could not read the checkpoint.
    ++world_->reached[saved->why.empty()             ? Reached::kCheckpointComplete
                      : saved->id == CheckpointId(0) ? Reached::kCheckpointRefused
                                                     : Reached::kCheckpointAbandoned];
    world_->trace.Narrate(absl::StrCat("scheduler: checkpoint ", saved->id.value(), " of ",
                                       saved->job, " ",
                                       saved->why.empty() ? "is complete" : saved->why));
  } else if (const auto* taken = std::get_if<scheduler::SnapshotTaken>(&event)) {
    world_->trace.Narrate(absl::StrCat("scheduler: snapshot ", taken->id.value(), " ",
                                       taken->why.empty() ? "is taken" : taken->why));
  } else if (const auto* back = std::get_if<scheduler::WentBack>(&event)) {
    ++world_->reached[back->folder.empty() ? Reached::kBegunAnew : Reached::kWentBackToCheckpoint];
    if (incremental_.contains(back->folder)) ++world_->reached[Reached::kWentBackToIncremental];
    world_->JobOf(back->job).went_back = true;
    world_->trace.Narrate(
        absl::StrCat("scheduler: ", back->job, " goes back to \"", back->folder, "\""));
  } else if (const auto* failed = std::get_if<scheduler::ServerFailed>(&event)) {
    ++world_->reached[Reached::kServerFailed];
    world_->trace.Narrate(absl::StrCat("scheduler: ", failed->node, " has failed to ", failed->job,
                                       ": ", failed->why));
  } else if (std::holds_alternative<scheduler::ModelLeftToTask>(event)) {
    ++world_->reached[Reached::kModelLeftToTask];
  } else if (const auto* ended = std::get_if<scheduler::JobEnded>(&event)) {
    world_->trace.Narrate(absl::StrCat("scheduler: ", ended->job, " has ended in state ",
                                       static_cast<int>(ended->state), " ",
                                       ended->failure.message));
  }
}

// A deadline that a Tick leaves in place, or moves by next to nothing, keeps a core busy.
void SimScheduler::NoteWakeup() {
  if (process_.Now() >= wakeups_since_ + absl::Seconds(1)) {
    wakeups_since_ = process_.Now();
    wakeups_ = 0;
  }
  if (++wakeups_ <= kWakeupsMax || !world_->failure.empty()) return;
  world_->failure = absl::StrCat("the scheduler's deadlines woke it more than ", kWakeupsMax,
                                 " times within a second");
}

void SimScheduler::Arm() {
  const Instant next = core_->NextDeadline();
  if (timer_ != 0 && timer_for_ == next) return;
  process_.CancelTimer(timer_);
  timer_for_ = next;
  timer_ = process_.At(next, [this] {
    timer_ = 0;
    NoteWakeup();
    scheduler::Actions actions;
    core_->Tick(process_.Now(), actions);
    Commit(std::move(actions));
  });
}

}  // namespace capstan::sim
