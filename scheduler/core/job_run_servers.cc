// JobRun: servers that join, die or are drained, and the recovery of lost shards.
#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/time/duration_text.h"
#include "scheduler/core/job_run.h"

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
  absl::btree_map<std::pair<NodeId, NodeId>, PrimaryMove> moves;
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

// ---------------------------------------------------------------- facts

void JobRun::OnNodesDied(absl::Span<const DeadNode> nodes, Instant now, Events& events) {
  if (ended()) return;
  for (const DeadNode& dead : nodes) {
    // When the model is in its place, the tables are no longer needed.
    if (phase_ != JobPhase::kFinishing) {
      if (UsesServer(dead.node)) {
        recovery_.OnServerDied(dead.node, dead.why);
        events.push_back(ServerLost{plan_.id, dead.node, dead.why});
      }
      shards_.ServerDied(dead.node, dead.fenced_at);
      members_.Forget(dead.node);
    }
    checkpoints_.OnServerDied(dead.node);
    links_.OnNodeDied(dead.node);
    for (const Rank rank : tasks_.OnNode(dead.node)) {
      EndTask(rank, {FailureReason::kNoHeartbeat, absl::StrCat(dead.node, " is gone: ", dead.why)},
              /*counted=*/false, now, events);
    }
  }
  Advance(now, events);
}

void JobRun::Adopt(const std::string& cluster, Incarnation first_life, CheckpointId floor,
                   Instant now, Events& events) {
  Restored(now, absl::ZeroDuration());
  const bool begins = phase_ == JobPhase::kPlacing || phase_ == JobPhase::kStarting;
  const auto& restore = recovery_.restore();
  const int64_t batches = begins && restore ? restore->at.iteration.value() : IterationNow();
  // In BSP no batch can be trained twice: servers accept each iteration of a slot once.
  recovery_.Adopt(plan_.consistency.synchronous() ? std::nullopt : std::make_optional(batches));
  checkpoints_.Abandon(absl::StrCat("its servers were of cluster ", cluster));
  checkpoints_.SkipTo(floor);
  absl::btree_set<NodeId> nodes;
  for (const ServerRef& server : routing_->servers) nodes.insert(server.node);
  for (const Task& task : tasks_.all()) {
    if (task.placed()) nodes.insert(task.node);
  }
  std::vector<DeadNode> gone;
  for (const NodeId& node : nodes) {
    gone.push_back({node, absl::StrCat("it was of cluster ", cluster), now});
  }
  shards_.Adopt(now);
  members_.Adopt(now);
  members_.Fence(first_life, now);
  Events happened;
  OnNodesDied(gone, now, happened);
  for (Event& event : happened) {
    // All nodes of the other cluster are gone, which needs no event.
    if (std::holds_alternative<ServerLost>(event) || std::holds_alternative<TaskDied>(event)) {
      continue;
    }
    events.push_back(std::move(event));
  }
}

void JobRun::OnServerJoined(const ServerRef& server, absl::Span<const StoredShard> stored,
                            bool draining, Instant now, Events& events) {
  if (ended()) return;
  shards_.SetServer(server, draining);
  if (recovery_.HasDied(server.node)) events.push_back(ServerReturned{plan_.id, server.node});
  if (plan_.log) shards_.SetStored(server.node, stored, plan_.unique_id);
  ++decisions_;  // The registration must be stored: the server does not repeat it after a restart.
  Advance(now, events);
}

bool JobRun::HasWritten(const StoredShard& log) const {
  return plan_.HasLog(log.job, log.unique_id) && log.term.value() > shards_.adopted_at().value();
}

void JobRun::OnServerDraining(const ServerRef& server, bool draining, Instant now, Events& events) {
  if (ended()) return;
  shards_.SetServer(server, draining);
  Advance(now, events);
}

void JobRun::MoveTask(Rank rank, const std::string& why, Instant now, Events& events) {
  if (ended() || IsModelWhole() || !tasks_.at(rank).placed()) return;
  EndTask(rank, {FailureReason::kNone, why}, /*counted=*/false, now, events);
  Advance(now, events);
}

void JobRun::OnTableReport(const NodeId& server, const TableReport& report, Instant now,
                           Events& events) {
  if (ended()) return;
  if (!UsesServer(server) || shards_.servers().HasFailed(server)) return;
  if (report.failure.happened()) {
    shards_.NoteApplied(server, report.routing);
    // If a log cannot be written or read, other servers may have copies or logs. By now the job may
    // wait for another server again.
    const bool reads_log = recovery_.active() && recovery_.ReadsLogs() &&
                           shards_.source().log_term > shards_.source().restore_term;
    if (report.failure.reason == FailureReason::kServerLost ||
        (report.failure.reason == FailureReason::kBadData && reads_log)) {
      return OnServerFailed(server, report.failure.message, now, events);
    }
    if (IsModelWhole()) return;  // The server repeats the report if the table is still needed.
    // A lack of memory is no damage of the checkpoint.
    if (report.failure.reason != FailureReason::kOutOfMemory &&
        TryOlderCheckpoint(server, report.failure.message, now, events)) {
      return;
    }
    End(JobState::kFailed,
        {report.failure.reason, absl::StrCat(server, ": ", report.failure.message)}, now, events);
    return;
  }
  if (report.version_max) recovery_.OnVersion(*report.version_max);
  shards_.OnTableReport(server, report);
  members_.Acknowledge(server, report.routing, report.membership);
  if (members_.making().Note(server, report.making, now)) ++revision_;
  for (const CheckpointReport& checkpoint : report.checkpoints) {
    checkpoints_.OnReport(server, checkpoint, now);
  }
  Advance(now, events);
}

void JobRun::OnServerFailed(const NodeId& server, const std::string& why, Instant now,
                            Events& events) {
  if (phase_ == JobPhase::kFinishing) return;
  events.push_back(ServerFailed{plan_.id, server, why});
  ++decisions_;
  recovery_.OnServerDied(server, why);
  shards_.ServerFailed(server, now);
  members_.Forget(server);
  checkpoints_.OnServerDied(server);
  Advance(now, events);
}

void JobRun::CheckServers(Instant now, Events& events) {
  if (IsModelWhole() || recovery_.waiting()) return;
  const auto late = members_.Latest();
  if (!late || now < late->since + options_.server_limit) return;
  End(JobState::kFailed,
      {FailureReason::kHang,
       absl::StrCat(late->node, " has not applied what the job asks of it for ",
                    DurationText(now - late->since), members_.making().Describe(late->node))},
      now, events);
}

// ---------------------------------------------------------------- the routing table

RestoreSource JobRun::restore_source() const {
  RestoreSource source = shards_.source();
  if (const auto& restore = recovery_.restore()) {
    if (source.restore_term == Term(0)) source.restore_term = kRestoreTerm;
    source.restore_folder = restore->folder;
  }
  return source;
}

void JobRun::SettleShards(Instant now, Events& events) {
  if (ended() || phase_ == JobPhase::kFinishing) return;
  TakeRouting(now, events);
  if (IsModelWhole()) return;
  if (shards_.has_lost()) {
    if (!recovery_.waiting()) BeginRecovery(now, events);
    if (!ended()) Recover(now, events);
  } else if (recovery_.active() && members_.tables_ready()) {
    recovery_.End();
    if (const std::optional<int64_t> batches = recovery_.TakeTrainedTwice()) {
      if (*batches > 0) events.push_back(TrainedTwice{plan_.id, *batches});
      ++decisions_;
    }
    SetPhase(phase_, events);
  }
}

void JobRun::TakeRouting(Instant now, Events& events) {
  if (!shards_.Settle(now)) return;
  const std::shared_ptr<const Routing> before = routing_;
  routing_ = std::make_shared<const Routing>(shards_.routing());
  members_.SetPrimaries(shards_.Primaries(), now);
  checkpoints_.OnRouting(*routing_);
  ++desired_version_;
  ++revision_;
  for (const Rank rank : tasks_.Live()) changed_assignments_.insert(rank);
  events.push_back(ChangeOf(*before, *routing_, shards_, plan_));
}

// ---------------------------------------------------------------- lost shards

void JobRun::BeginRecovery(Instant now, Events& events) {
  if (!recovery_.ReadsLogs() && !recovery_.CanGoBack(NewestCheckpoint(), metrics_.samples())) {
    EndForLostShards(now, events);
    return;
  }
  const bool first = recovery_.Begin(now);
  ++revision_;
  ++desired_version_;
  if (first) events.push_back(PhaseStarted{plan_.id, JobPhase::kRecovering, epochs_.epoch()});
}

void JobRun::EndForLostShards(Instant now, Events& events) {
  const std::string why = recovery_.WhyLost(shards_.LostShards());
  End(JobState::kFailed, {FailureReason::kServerLost, why}, now, events);
}

void JobRun::Recover(Instant now, Events& events) {
  const bool found = recovery_.ReadsLogs() && shards_.RecoverFromLog(now);
  // A checkpoint that is being published removes others when it is complete, so the job waits until
  // the remaining ones are known.
  if (!found && checkpoints_.MustPublish()) return;
  const bool may_go_back = recovery_.IsTimeToGoBack(found, now);
  if (found || (may_go_back && GoBack(now, events))) {
    recovery_.Placed(now);
    TakeRouting(now, events);
  } else if (recovery_.IsHopeless(now)) {
    EndForLostShards(now, events);
  }
}

const RestoreFrom* JobRun::NewestCheckpoint() const {
  const RestoreFrom* const best = epochs_.returned() ? checkpoints_.kept() : nullptr;
  return best != nullptr ? best : recovery_.Newest(checkpoints_.complete());
}

// All tasks end, because their state depends on values that are lost; this does not count as a
// failure. The job places its tables again, and begins at the newest checkpoint. A job that has not
// trained yet begins with its initial values.
bool JobRun::GoBack(Instant now, Events& events) {
  if (!recovery_.GoBackTo(NewestCheckpoint(), metrics_.samples(), &shards_)) return false;
  const std::string folder = recovery_.restore() ? recovery_.restore()->folder : "";
  checkpoints_.Abandon(epochs_.returned() ? "training is over" : "its shards are lost");
  const Failure failure{FailureReason::kNone,
                        recovery_.restore()
                            ? absl::StrCat("the job goes back to ", folder)
                            : "the job begins anew: servers died before it trained"};
  for (const Task& task : tasks_.all()) {
    if (task.placed()) EndTask(task.rank, failure, /*counted=*/false, now, events);
  }
  export_.Clear();
  members_.Fence(tasks_.LastLife().Next(), now);
  events.push_back(
      WentBack{plan_.id, folder, epochs_.returned() ? epochs_.BestEpoch() : std::nullopt});
  work_->Clear();
  pause_.EndKeeping();
  epochs_.CancelFinalTest();
  phase_ = JobPhase::kPlacing;
  ++revision_;
  return true;
}

// If a server cannot read the checkpoint from which it restores shards, the job goes back to the
// one before. The checkpoint that the job began with is never forgotten. Returns false if there is
// no other checkpoint.
bool JobRun::TryOlderCheckpoint(const NodeId& server, const std::string& why, Instant now,
                                Events& events) {
  const std::vector<RestoreFrom>& complete = checkpoints_.complete();
  const RestoreFrom* const newest = NewestCheckpoint();
  const auto& restore = recovery_.restore();
  const bool restoring = phase_ == JobPhase::kPlacing && restore && !complete.empty() &&
                         newest->folder == restore->folder;
  if (!restoring) return false;
  events.push_back(
      CheckpointEnded{plan_.id, CheckpointId(0), restore->folder, absl::StrCat(server, ": ", why)});
  checkpoints_.Forget(newest->id);
  epochs_.CancelReturn();                     // The forgotten one may have been the best epoch's.
  if (pause_.MustStop()) checkpoints_.Ask();  // It may have been the job's last.
  if (!recovery_.CanGoBack(NewestCheckpoint(), metrics_.samples())) return false;
  if (!GoBack(now, events)) {  // No server can take the shards now, so the job waits for one.
    OnServerFailed(server, why, now, events);
    return true;
  }
  recovery_.Placed(now);
  TakeRouting(now, events);
  Advance(now, events);
  return true;
}

}  // namespace capstan::scheduler
