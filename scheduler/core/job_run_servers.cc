// Servers: what follows when they join, die or are drained, and how lost shards come back.
#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/time/duration_text.h"
#include "scheduler/core/job_run.h"

namespace capstan::scheduler {
namespace {

constexpr size_t kShardsNamedMax = 8;
constexpr int kBeginningsMax = 20;  // Without any training in between.

constexpr int kBeginningsAtOnce = 5;
constexpr absl::Duration kBeginPauseMax = absl::Seconds(30);

std::string Seconds(absl::Duration duration) { return DurationText(duration); }

// From a loss to the next beginning of a job that has begun so often and never got to train: the
// network, or whatever ends its servers, is given time. At most a quarter of `wait`.
absl::Duration BeginPause(int beginnings, absl::Duration wait) {
  if (beginnings < kBeginningsAtOnce) return absl::ZeroDuration();
  const absl::Duration pause = absl::Seconds(1) * std::exp2(beginnings - kBeginningsAtOnce);
  return std::min({pause, kBeginPauseMax, wait / 4});
}

const ServerRef& PrimaryIn(const Routing& routing, const ShardRoute& route) {
  return routing.servers[static_cast<size_t>(route.server)];
}

// Shards with fewer than `replicas` in sync.
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

// Both tables have the same shards in the same order.
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
    move.from_lives = shards.Lives(from);
    ++move.shards;
    if (HasReplicaInSync(after, after.shards[i], from)) ++move.swapped;
  }
  std::vector<PrimaryMove> all;
  for (const auto& [nodes, move] : moves) all.push_back(move);
  return all;
}

}  // namespace

// ---------------------------------------------------------------- facts

void JobRun::OnNodesDied(absl::Span<const DeadNode> nodes, Instant now, Events& events) {
  if (ended()) return;
  for (const DeadNode& dead : nodes) {
    // Once the model is in its place nobody needs the tables.
    if (phase_ != JobPhase::kFinishing) {
      if (shards_.IsUsed(dead.node)) {
        server_deaths_[dead.node] = dead.why;
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
  if (plan_.mode != Mode::kBsp) {
    const bool begins = phase_ == JobPhase::kPlacing || phase_ == JobPhase::kStarting;
    adopted_ =
        Adopted{.batches = begins && restore_ ? restore_->at.iteration.value() : IterationNow()};
  }
  trained_ = true;  // Perhaps after the record: the logs tell.
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
    // That all of the other cluster is gone is no news.
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
  if (server_deaths_.contains(server.node)) events.push_back(ServerReturned{plan_.id, server.node});
  if (plan_.log) shards_.SetStored(server.node, stored, plan_.unique_id);
  ++decisions_;  // It will not register again only because this scheduler has forgotten it.
  Advance(now, events);
}

bool JobRun::HasWritten(const StoredShard& log) const {
  return plan_.log && log.job == plan_.id && log.unique_id == plan_.unique_id &&
         log.term.value() > shards_.adopted_at().value();
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
  if (!UsesServer(server) || shards_.HasFailed(server)) return;
  if (report.failure.happened()) {
    shards_.NoteApplied(server, report.routing);
    // A log that cannot be written, or read back: other servers may have copies, and other logs.
    // It may be waited for another server again by now.
    const bool reads_log =
        recovery_ && WaitsForLog() && shards_.log_term() > shards_.restore_term();
    if (report.failure.reason == FailureReason::kServerLost ||
        (report.failure.reason == FailureReason::kBadData && reads_log)) {
      return OnServerFailed(server, report.failure.message, now, events);
    }
    if (IsModelWhole()) return;  // It is said again if the table is missed.
    // A lack of memory is no fault of the checkpoint.
    if (report.failure.reason != FailureReason::kOutOfMemory &&
        TryOlderCheckpoint(absl::StrCat(server, ": ", report.failure.message), now, events)) {
      return;
    }
    End(JobState::kFailed,
        {report.failure.reason, absl::StrCat(server, ": ", report.failure.message)}, now, events);
    return;
  }
  if (adopted_ && report.version_max) {
    adopted_->version = std::max(adopted_->version, *report.version_max);
  }
  shards_.OnTableReport(server, report);
  members_.Acknowledge(server, report.routing, report.membership);
  if (members_.NoteMaking(server, report.making, now)) ++revision_;
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
  server_deaths_[server] = why;
  shards_.ServerFailed(server, now);
  members_.Forget(server);
  checkpoints_.OnServerDied(server);
  Advance(now, events);
}

void JobRun::CheckServers(Instant now, Events& events) {
  if (IsModelWhole() || (recovery_ && recovery_->waiting)) return;
  const std::optional<NodeId> late = members_.Late(options_.server_limit, now);
  if (!late) return;
  End(JobState::kFailed,
      {FailureReason::kHang,
       absl::StrCat(*late, " has not applied what the job asks of it for ",
                    DurationText(now - members_.StandsSince(*late)), MadeBy(*late))},
      now, events);
}

std::string JobRun::MadeBy(const NodeId& server) const {
  const std::optional<Making> making = members_.MakingOf(server);
  if (!making || making->total == 0) return "";
  return absl::StrCat(" (", making->made, " of ", making->total, " shards are made)");
}

std::string JobRun::WaitsForShards(absl::string_view what) const {
  const std::optional<NodeId> behind = members_.Behind();
  return absl::StrCat("waits for ", behind.value_or("its servers"), what,
                      behind ? MadeBy(*behind) : "");
}

// ---------------------------------------------------------------- the routing table

RestoreSource JobRun::restore_source() const {
  RestoreSource source{.restore_term = shards_.restore_term(), .log_term = shards_.log_term()};
  if (restore_ && source.restore_term == Term(0)) source.restore_term = kRestoreTerm;
  if (restore_) source.restore_folder = restore_->folder;
  return source;
}

void JobRun::SettleShards(Instant now, Events& events) {
  if (ended() || phase_ == JobPhase::kFinishing) return;
  TakeRouting(now, events);
  if (IsModelWhole()) return;
  if (shards_.has_lost()) {
    if (!recovery_ || !recovery_->waiting) BeginRecovery(now, events);
    if (!ended()) Recover(now, events);
  } else if (recovery_ && members_.tables_ready()) {
    recovery_.reset();
    NoteAdopted(events);
    SetPhase(phase_, events);
  }
}

// A push that had reached one shard counts as a batch that the model has.
void JobRun::NoteAdopted(Events& events) {
  if (!adopted_) return;
  const int64_t batches = adopted_->version.value() - adopted_->batches;
  if (batches > 0) events.push_back(TrainedTwice{plan_.id, batches});
  adopted_.reset();
  ++decisions_;
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
  RoutingChanged changed{.job = plan_.id,
                         .generation = routing_->generation,
                         .moves = MovesBetween(*before, *routing_, shards_),
                         .shards = static_cast<int>(routing_->shards.size()),
                         .replicas = plan_.replicas,
                         .degraded = CountDegraded(*routing_, plan_.replicas),
                         .degraded_before = CountDegraded(*before, plan_.replicas)};
  for (const ShardRoute& route : routing_->shards) {
    if (route.term == Term(routing_->generation.value())) ++changed.promoted;
    for (const ReplicaRef& replica : route.replicas) changed.filling += replica.in_sync ? 0 : 1;
  }
  events.push_back(std::move(changed));
}

// ---------------------------------------------------------------- lost shards

void JobRun::BeginRecovery(Instant now, Events& events) {
  if (!WaitsForLog() && !CanGoBack()) {
    End(JobState::kFailed, {FailureReason::kServerLost, DescribeLoss()}, now, events);
    return;
  }
  const bool first = !recovery_.has_value();
  recovery_ = Recovery{.since = now};
  ++revision_;
  ++desired_version_;
  if (first) events.push_back(PhaseStarted{plan_.id, JobPhase::kRecovering, epoch_});
}

// First the log, for as long as its server may come back; then the checkpoint, or before any
// training the initial values; then the end.
void JobRun::Recover(Instant now, Events& events) {
  const bool late = now >= recovery_->since + plan_.server_wait;
  const bool found = WaitsForLog() && shards_.RecoverFromLog(now);
  // A checkpoint that becomes complete removes others: only then is it known which are there.
  if (!found && checkpoints_.MustPublish()) return;
  const Instant begin = recovery_->since + BeginPause(beginnings_, plan_.server_wait);
  begin_at_ = !found && now < begin ? begin : Instant::InfiniteFuture();
  const bool may_go_back = (late || !WaitsForLog()) && now >= begin;
  if (found || (may_go_back && GoBack(now, events))) {
    recovery_->waiting = false;
    TakeRouting(now, events);
    return;
  }
  const bool in_vain = may_go_back && beginnings_ >= kBeginningsMax;
  if (late || in_vain) End(JobState::kFailed, {FailureReason::kServerLost, WhyLost()}, now, events);
}

std::string JobRun::WhyLost() const {
  std::string message = DescribeLoss();
  std::vector<std::string> shards;
  for (const ShardMap::Lost& lost : shards_.LostShards()) {
    if (shards.size() == kShardsNamedMax) {
      shards.push_back("...");
      break;
    }
    shards.push_back(absl::StrCat(lost.key.table.value(), "/", lost.key.shard.value()));
  }
  absl::StrAppend(&message, "; no copy of table/shard ", absl::StrJoin(shards, ", "),
                  " is left, and ");
  if (!WaitsForLog() && beginnings_ >= kBeginningsMax) {
    absl::StrAppend(
        &message, "the job has begun ", beginnings_,
        " times from what it could go back to; servers died each time before it trained");
  } else {
    absl::StrAppend(&message, "within ", DurationText(plan_.server_wait),
                    WaitsForLog() ? " it did not come back with its log"
                                  : " there was no server to restore it on");
  }
  return message;
}

const RestoreFrom* JobRun::NewestCheckpoint() const {
  if (const RestoreFrom* best = BestCheckpoint(); returned_to_best_ && best != nullptr) return best;
  if (!checkpoints_.complete().empty()) return &checkpoints_.complete().back();
  return begins_at_ ? &*begins_at_ : nullptr;
}

// All tasks end, by no fault of theirs: what they hold leads on from values that are lost. The job
// places its tables anew, and begins where the newest checkpoint stood; one that has not trained
// yet begins with its initial values.
bool JobRun::GoBack(Instant now, Events& events) {
  if (!CanGoBack() || beginnings_ >= kBeginningsMax || !shards_.PlaceAnew()) return false;
  ++beginnings_;
  const RestoreFrom* newest = NewestCheckpoint();
  restore_ = newest == nullptr ? std::nullopt : std::make_optional(*newest);
  checkpoints_.Abandon(returned_to_best_ ? "training is over" : "its shards are lost");
  const Failure failure{FailureReason::kNone,
                        restore_ ? absl::StrCat("the job goes back to ", restore_->folder)
                                 : "the job begins anew: servers died before it trained"};
  for (const Task& task : tasks_.all()) {
    if (task.placed()) EndTask(task.rank, failure, /*counted=*/false, now, events);
  }
  export_.Clear();
  members_.Fence(tasks_.LastLife().Next(), now);
  events.push_back(WentBack{plan_.id, restore_ ? restore_->folder : "",
                            returned_to_best_ ? BestEpoch() : std::nullopt});
  work_->Clear();
  pause_.EndKeeping();
  final_test_ = false;
  phase_ = JobPhase::kPlacing;
  ++revision_;
  return true;
}

// A server cannot read the checkpoint that it is to take its shards from: then the one before. What
// the job began with stays, whatever is said of it.
bool JobRun::TryOlderCheckpoint(const std::string& why, Instant now, Events& events) {
  const std::vector<RestoreFrom>& complete = checkpoints_.complete();
  const RestoreFrom* const newest = NewestCheckpoint();
  const bool restoring = phase_ == JobPhase::kPlacing && restore_ && !complete.empty() &&
                         newest->folder == restore_->folder;
  if (!restoring) return false;
  events.push_back(CheckpointEnded{plan_.id, CheckpointId(0), restore_->folder, why});
  checkpoints_.Forget(newest->id);
  returned_to_best_ = false;                  // If it was the best one: then there is none.
  if (pause_.MustStop()) checkpoints_.Ask();  // It may have been the job's last.
  if (!GoBack(now, events)) return false;
  recovery_ = Recovery{.since = now, .waiting = false};
  TakeRouting(now, events);
  Advance(now, events);
  return true;
}

std::string JobRun::DescribeLoss() const {
  const std::vector<ShardMap::Lost> lost = shards_.LostShards();
  const NodeId node = lost.empty() ? NodeId() : lost.front().holders.front();
  const auto death = server_deaths_.find(node);
  return absl::StrCat(node, ", which held shards of the job, is gone: ",
                      death == server_deaths_.end() ? "" : death->second);
}

std::string JobRun::RecoveryDetail(Instant now) const {
  if (!recovery_->waiting) {
    return WaitsForShards(" to restore its shards");
  }
  absl::btree_set<NodeId> holders;
  const std::vector<ShardMap::Lost> lost = shards_.LostShards();
  for (const ShardMap::Lost& shard : lost) {
    holders.insert(shard.holders.begin(), shard.holders.end());
  }
  return absl::StrCat(lost.size(), " shards are lost: waits for ",
                      WaitsForLog()
                          ? absl::StrCat(absl::StrJoin(holders, ", "), " to come back with the log")
                          : "a server to restore them on",
                      "; ", Seconds(recovery_->since + plan_.server_wait - now), " are left");
}

}  // namespace capstan::scheduler
