#include "scheduler/core/job/parts/server_watch.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/time/duration_text.h"

namespace capstan::scheduler {
namespace {

const ServerRef& PrimaryIn(const Routing& routing, const ShardRoute& route) {
  return routing.servers[static_cast<size_t>(route.server)];
}

// Counts the shards with fewer than `replicas` replicas in sync.
int CountDegraded(const Routing& routing, int replicas) {
  return static_cast<int>(std::count_if(
      routing.shards.begin(), routing.shards.end(), [replicas](const ShardRoute& route) {
        return std::count_if(route.replicas.begin(), route.replicas.end(),
                             [](const ReplicaRef& replica) { return replica.in_sync; }) < replicas;
      }));
}

bool HasReplicaInSync(const Routing& routing, const ShardRoute& route, const ServerRef& server) {
  return std::any_of(route.replicas.begin(), route.replicas.end(), [&](const ReplicaRef& replica) {
    return replica.in_sync && routing.servers[static_cast<size_t>(replica.server)] == server;
  });
}

// Returns the moves of primaries. REQUIRES: both tables have the same shards in the same order.
std::vector<PrimaryMove> MovesBetween(const Routing& before, const Routing& after,
                                      const ShardMap& shards) {
  std::map<std::pair<NodeId, NodeId>, PrimaryMove> moves;
  for (size_t i = 0; i < after.shards.size(); ++i) {
    if (after.shards[i].term == before.shards[i].term) continue;
    const ServerRef& from = PrimaryIn(before, before.shards[i]);
    const ServerRef& to = PrimaryIn(after, after.shards[i]);
    PrimaryMove& move = moves[{from.node, to.node}];
    move.from = from.node;
    move.to = to.node;
    move.from_lives = shards.servers().Lives(from);
    ++move.shards;
    if (HasReplicaInSync(after, after.shards[i], from)) ++move.swapped;
  }
  std::vector<PrimaryMove> all;
  for (const auto& [nodes, move] : moves) all.push_back(move);
  return all;
}

RoutingChanged ChangeOf(const Routing& before, const Routing& after, const ShardMap& shards,
                        const JobPlan& plan) {
  RoutingChanged changed{.job = plan.id,
                         .generation = after.generation,
                         .moves = MovesBetween(before, after, shards),
                         .shards = static_cast<int>(after.shards.size()),
                         .replicas = plan.replicas,
                         .degraded = CountDegraded(after, plan.replicas),
                         .degraded_before = CountDegraded(before, plan.replicas)};
  for (const ShardRoute& route : after.shards) {
    if (route.term == Term(after.generation.value())) ++changed.promoted;
    for (const ReplicaRef& replica : route.replicas) changed.filling += replica.in_sync ? 0 : 1;
  }
  return changed;
}

}  // namespace

ServerWatch::ServerWatch(JobShared* job, const Parts& parts, std::optional<RestoreFrom> restore)
    : job_(*job),
      checkpoints_(*parts.checkpoints),
      training_(*parts.training),
      exporter_(*parts.exporter),
      task_watch_(*parts.task_watch),
      recovery_(job->plan, std::move(restore)) {}

absl::Status ServerWatch::Check() const {
  absl::Status status;
  for (const std::optional<RestoreFrom>* from : {&recovery_.begins_at(), &recovery_.restore()}) {
    if (*from) status.Update(CheckResumePoint((*from)->at, job_.plan));
  }
  return status;
}

// ---------------------------------------------------------------- facts

void ServerWatch::OnJoined(const ServerRef& server, absl::Span<const StoredShard> stored,
                           bool draining, Events& events) {
  job_.shards.SetServer(server, draining);
  if (recovery_.HasDied(server.node)) events.push_back(ServerReturned{job_.plan.id, server.node});
  if (job_.plan.log) job_.shards.SetStored(server.node, stored, job_.plan.unique_id);
  // The registration must be stored: the server does not repeat it after a restart.
  ++job_.decisions;
}

void ServerWatch::OnDied(const NodeId& server, const std::string& why, Instant fenced_at,
                         Events& events) {
  // When the model is in its place, the tables are no longer needed.
  if (job_.phase != JobPhase::kFinishing) {
    if (Uses(server)) {
      recovery_.OnServerDied(server, why);
      events.push_back(ServerLost{job_.plan.id, server, why});
    }
    job_.shards.ServerDied(server, fenced_at);
    job_.members.Forget(server);
  }
  checkpoints_.all().OnServerDied(server);
}

void ServerWatch::OnFailed(const NodeId& server, const std::string& why, Instant now,
                           Events& events) {
  events.push_back(ServerFailed{job_.plan.id, server, why});
  ++job_.decisions;
  recovery_.OnServerDied(server, why);
  job_.shards.ServerFailed(server, now);
  job_.members.Forget(server);
  checkpoints_.all().OnServerDied(server);
}

void ServerWatch::OnReport(const NodeId& server, const TableReport& report, Instant now) {
  if (report.version_max) recovery_.OnVersion(*report.version_max);
  job_.shards.OnTableReport(server, report);
  job_.members.Acknowledge(server, report.routing, report.membership);
  if (job_.members.making().Note(server, report.making, now)) ++job_.revision;
  for (const CheckpointReport& checkpoint : report.checkpoints) {
    checkpoints_.all().OnReport(server, checkpoint, now);
  }
}

// If a log cannot be written or read, other servers may have copies or logs. By now the job may
// wait for another server again.
bool ServerWatch::HasLostShards(const Failure& failure) const {
  const RestoreSource source = job_.shards.source();
  const bool reads_log =
      recovery_.active() && recovery_.ReadsLogs() && source.log_term > source.restore_term;
  return failure.reason == FailureReason::kServerLost ||
         (failure.reason == FailureReason::kBadData && reads_log);
}

void ServerWatch::Adopt(Instant now) {
  const auto& restore = recovery_.restore();
  const bool begins = job_.phase == JobPhase::kPlacing || job_.phase == JobPhase::kStarting;
  const int64_t batches = begins && restore ? restore->at.iteration.value() : training_.StepsDone();
  // In BSP no batch can be trained twice: servers accept each iteration of a slot once.
  recovery_.Adopt(job_.plan.consistency.synchronous() ? std::nullopt : std::make_optional(batches));
  job_.shards.Adopt(now);
  job_.members.Adopt(now);
}

bool ServerWatch::HasWritten(const StoredShard& log) const {
  return job_.plan.HasLog(log.job, log.unique_id) &&
         log.term.value() > job_.shards.adopted_at().value();
}

// ---------------------------------------------------------------- the routing table

RestoreSource ServerWatch::source() const {
  RestoreSource source = job_.shards.source();
  if (const auto& restore = recovery_.restore()) {
    if (source.restore_term == Term(0)) source.restore_term = kRestoreTerm;
    source.restore_folder = restore->folder;
  }
  return source;
}

std::optional<Failure> ServerWatch::Settle(Instant now, Events& events) {
  if (job_.phase == JobPhase::kFinishing) return std::nullopt;
  TakeRouting(now, events);
  if (exporter_.IsWhole()) return std::nullopt;
  if (job_.shards.has_lost()) {
    if (!recovery_.waiting()) {
      if (std::optional<Failure> failure = BeginRecovery(now, events)) return failure;
    }
    return Recover(now, events);
  }
  if (recovery_.active() && job_.members.tables_ready()) {
    recovery_.End();
    if (const std::optional<int64_t> batches = recovery_.TakeTrainedTwice()) {
      if (*batches > 0) events.push_back(TrainedTwice{job_.plan.id, *batches});
      ++job_.decisions;
    }
    job_.SetPhase(job_.phase, events);
  }
  return std::nullopt;
}

void ServerWatch::TakeRouting(Instant now, Events& events) {
  if (!job_.shards.Settle(now)) return;
  const std::shared_ptr<const Routing> before = job_.routing;
  job_.routing = std::make_shared<const Routing>(job_.shards.routing());
  job_.members.SetPrimaries(job_.shards.Primaries(), now);
  checkpoints_.all().OnRouting(*job_.routing);
  ++job_.desired_version;
  ++job_.revision;
  for (const Rank rank : job_.tasks.Live()) job_.tasks.NoteChanged(rank);
  events.push_back(ChangeOf(*before, *job_.routing, job_.shards, job_.plan));
}

std::optional<Failure> ServerWatch::CheckServers(Instant now) const {
  if (exporter_.IsWhole() || recovery_.waiting()) return std::nullopt;
  const auto late = job_.members.Latest();
  if (!late || now < late->since + job_.options.server_limit) return std::nullopt;
  return Failure{
      FailureReason::kHang,
      absl::StrCat(late->node, " has not applied what the job asks of it for ",
                   DurationText(now - late->since), job_.members.making().Describe(late->node))};
}

Instant ServerWatch::NextDeadline() const {
  if (job_.phase == JobPhase::kFinishing) return Instant::InfiniteFuture();
  const Instant next = job_.shards.NextDeadline();
  if (exporter_.IsWhole()) return next;
  if (recovery_.waiting()) {
    return AwaitsManifest() ? next : std::min(next, recovery_.NextDeadline());
  }
  const auto late = job_.members.Latest();
  return late ? std::min(next, late->since + job_.options.server_limit) : next;
}

// ---------------------------------------------------------------- lost shards

std::optional<Failure> ServerWatch::BeginRecovery(Instant now, Events& events) {
  if (!recovery_.ReadsLogs() && !recovery_.CanGoBack(NewestCheckpoint(), job_.metrics.samples())) {
    return LostShards();
  }
  const bool first = recovery_.Begin(now);
  ++job_.revision;
  ++job_.desired_version;
  if (first) {
    events.push_back(PhaseStarted{job_.plan.id, JobPhase::kRecovering, job_.epochs.epoch()});
  }
  return std::nullopt;
}

Failure ServerWatch::LostShards() const {
  return {FailureReason::kServerLost, recovery_.WhyLost(job_.shards.LostShards())};
}

std::optional<Failure> ServerWatch::Recover(Instant now, Events& events) {
  const bool found = recovery_.ReadsLogs() && job_.shards.RecoverFromLog(now);
  if (!found && AwaitsManifest()) return std::nullopt;
  const bool may_go_back = recovery_.IsTimeToGoBack(found, now);
  if (found || (may_go_back && GoBack(now, events))) {
    Place(now, events);
  } else if (recovery_.IsHopeless(now)) {
    return LostShards();
  }
  return std::nullopt;
}

void ServerWatch::Place(Instant now, Events& events) {
  recovery_.Placed(now);
  TakeRouting(now, events);
}

const RestoreFrom* ServerWatch::NewestCheckpoint() const {
  const CompleteCheckpoints& complete = checkpoints_.all().complete();
  const RestoreFrom* const best = job_.epochs.returned() ? complete.kept() : nullptr;
  return best != nullptr ? best : recovery_.Newest(complete.all());
}

// A job that has not trained yet begins with its initial values.
bool ServerWatch::GoBack(Instant now, Events& events) {
  if (!recovery_.GoBackTo(NewestCheckpoint(), job_.metrics.samples(), &job_.shards)) return false;
  checkpoints_.GoBack(job_.epochs.returned() ? "training is over" : "its shards are lost");
  EndTasks(now, events);
  exporter_.Clear();
  const auto& restore = recovery_.restore();
  job_.SetTrained(restore ? restore->at.trained : absl::ZeroDuration(), now);
  job_.members.Fence(job_.tasks.LastIncarnation().Next(), now);
  events.push_back(WentBack{job_.plan.id, restore ? restore->folder : "",
                            job_.epochs.returned() ? job_.epochs.BestEpoch() : std::nullopt});
  training_.work().Clear();
  job_.epochs.CancelFinalTest();
  job_.phase = JobPhase::kPlacing;
  ++job_.revision;
  return true;
}

// All tasks end, because their state depends on values that are lost; this does not count as a
// failure.
void ServerWatch::EndTasks(Instant now, Events& events) {
  const auto& restore = recovery_.restore();
  const Failure why{FailureReason::kNone,
                    restore ? absl::StrCat("the job goes back to ", restore->folder)
                            : "the job begins anew: servers died before it trained"};
  for (const Task& task : job_.tasks.all()) {
    if (task.placed()) task_watch_.EndUncounted(task.rank, why, now, events);
  }
}

bool ServerWatch::TryOlderCheckpoint(const NodeId& server, const std::string& why, Instant now,
                                     Events& events) {
  const std::vector<RestoreFrom>& complete = checkpoints_.all().complete().all();
  const RestoreFrom* const newest = NewestCheckpoint();
  const auto& restore = recovery_.restore();
  const bool restoring = job_.phase == JobPhase::kPlacing && restore && !complete.empty() &&
                         newest->folder == restore->folder;
  if (!restoring) return false;
  events.push_back(CheckpointEnded{job_.plan.id, CheckpointId(0), restore->folder,
                                   absl::StrCat(server, ": ", why)});
  checkpoints_.Forget(newest->id);
  if (!recovery_.CanGoBack(NewestCheckpoint(), job_.metrics.samples())) return false;
  if (GoBack(now, events)) {
    Place(now, events);
  } else {
    OnFailed(server, why, now,
             events);  // No server can take the shards now: the job waits for one.
  }
  return true;
}

bool ServerWatch::ReturnToBest(Instant now, Events& events) {
  job_.epochs.ReturnTo(*checkpoints_.all().complete().kept());
  if (!GoBack(now, events)) {
    job_.epochs.CancelReturn();
    return false;
  }
  Place(now, events);
  return true;
}

}  // namespace capstan::scheduler
