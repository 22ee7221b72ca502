#include "server/engine/job/job_assignment.h"

#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/codec.h"
#include "server/engine/job/call_sink.h"

namespace capstan::server {
namespace {

bool IsOf(const ShardEngine& engine, const HeldShard& shard) {
  absl::MutexLock shard_lock(&engine.mutex);
  return engine.link.shard() == shard;
}

bool IsOf(const ShardEngine& engine, Term term) {
  absl::MutexLock shard_lock(&engine.mutex);
  return engine.link.replication().term() == term;
}

}  // namespace

absl::StatusOr<std::vector<ShardOrder>> JobAssignment::MissingShards(
    const v1::RoutingTable& routing, const ShardSources& sources) const {
  absl::MutexLock lock(&state_->mutex);
  if (!state_->routing.IsNewer(Generation(routing.generation()))) return std::vector<ShardOrder>();
  return state_->routing.MissingShards(
      DecodeRouting(routing), sources,
      [this](const HeldShard& shard) ABSL_NO_THREAD_SAFETY_ANALYSIS { return StateLocked(shard); });
}

ShardState JobAssignment::StateLocked(const HeldShard& shard) const {
  const auto it = state_->engines.find(shard.key);
  if (it == state_->engines.end() || state_->tables.Find(shard.key) == nullptr) return {};
  absl::MutexLock shard_lock(&it->second->mutex);
  const ShardLink& link = it->second->link;
  if (link.shard() != shard) return {};
  return {.is_held = true, .is_primary = link.is_primary(), .term = link.replication().term()};
}

bool JobAssignment::TakesLocked(const v1::RoutingTable& routing) const {
  return state_->closed.ok() && state_->routing.IsNewer(Generation(routing.generation()));
}

void JobAssignment::ForgetForRestore(const v1::RoutingTable& routing, Term restore_term) {
  JobEffects effects;
  {
    absl::MutexLock lock(&state_->mutex);
    if (!TakesLocked(routing) || !AllBeginAnew(DecodeRouting(routing), restore_term)) return;
    for (auto it = state_->engines.begin(); it != state_->engines.end();) {
      it = IsOf(*it->second, restore_term) ? std::next(it) : RemoveLocked(it, &effects);
    }
  }
  commits_->Perform(&effects);
}

void JobAssignment::SetRouting(const v1::RoutingTable& routing, std::vector<MadeShard> made) {
  JobEffects effects;
  {
    absl::MutexLock lock(&state_->mutex);
    if (!TakesLocked(routing)) return;
    state_->routing_table = routing;
    const std::vector<RoutedShard> routed =
        state_->routing.Take(DecodeRouting(routing), state_->membership.incarnation_floor);
    Servers servers;
    for (const v1::ServerAddress& server : routing.servers()) servers[KeyOfServer(server)] = server;
    MadeFrom made_from;
    for (MadeShard& each : made) {
      const ShardKey key = each.order.shard.key;
      state_->EndWaitingForLocked(key,
                                  absl::FailedPreconditionError(absl::StrCat(
                                      NameOf(key), " begins anew; fetch the routing table")),
                                  &effects.ended);
      state_->snapshots.ShardGone(key, state_->tables);
      state_->tables.Put(key, std::move(each.shard));
      made_from[key] = each.order.from;
    }
    std::set<ShardKey> named;
    for (const RoutedShard& shard : routed) {
      named.insert(shard.shard.key);
      SetRouteLocked(shard, servers, made_from, &effects);
    }
    for (auto it = state_->engines.begin(); it != state_->engines.end();) {
      it = named.contains(it->first) ? std::next(it) : RemoveLocked(it, &effects);
    }
    commits_->SettleLogsLocked(&effects);
  }
  commits_->Perform(&effects);
}

void JobAssignment::SetRouteLocked(const RoutedShard& routed, const Servers& servers,
                                   const MadeFrom& made, JobEffects* effects) {
  const ShardKey key = routed.shard.key;
  ShardEngine& engine = MakeEngineLocked(routed.shard, effects);
  if (routed.role.role == ShardRole::kPrimary && state_->tables.Find(key) == nullptr) {
    state_->failure = absl::InternalError(
        absl::StrCat(NameOf(key), " was to be made before this server became its primary"));
    effects->report = true;
    return;
  }
  bool was_primary = false, is_primary = false;
  {
    absl::MutexLock shard_lock(&engine.mutex);
    ShardLink& link = engine.link;
    if (const auto from = made.find(key); from != made.end()) {
      std::optional<Position> in_log;
      // This is skipped if the log has begun with something else meanwhile.
      const bool only = link.replication().held_term() == Term(0);
      if (from->second == ShardOrder::From::kLog && only) {
        in_log = state_->tables.Find(key)->core().position();
      }
      link.MadeAnew(in_log);
    }
    was_primary = link.is_primary();
    std::map<FollowerKey, v1::ServerAddress> followers;
    for (const FollowerRoute& each : routed.role.followers) {
      followers[each.key] = servers.at(each.key);
    }
    link.SetRole(routed.role, std::move(followers), state_->tables.Find(key), &effects->ended);
    is_primary = link.is_primary();
  }
  if (was_primary && !is_primary) {
    state_->tables.at(key).ForgetCaptures();
    state_->EndWaitingForLocked(key, JobState::ReplacedError(key), &effects->ended);
  }
  if (!is_primary) return;
  CallSink sink(state_, &effects->ended);
  {
    absl::MutexLock shard_lock(&engine.mutex);
    state_->tables.SetMembership(key, state_->membership, sink);
  }
  sink.Touch(key);
  commits_->SettleLocked(sink, effects);
}

ShardEngine& JobAssignment::MakeEngineLocked(const HeldShard& shard, JobEffects* effects) {
  auto it = state_->engines.find(shard.key);
  if (it != state_->engines.end() && !IsOf(*it->second, shard)) {  // The table was cut anew.
    RemoveLocked(it, effects);
    it = state_->engines.end();
  }
  if (it == state_->engines.end()) {
    auto made = std::make_unique<ShardEngine>(&state_->link_options, shard, ++engines_made_);
    it = state_->engines.insert({shard.key, std::move(made)}).first;
  }
  return *it->second;
}

JobState::Engines::iterator JobAssignment::RemoveLocked(JobState::Engines::iterator engine,
                                                        JobEffects* effects) {
  const ShardKey key = engine->first;
  state_->EndWaitingForLocked(key,
                              absl::FailedPreconditionError(absl::StrCat(
                                  NameOf(key),
                                  " is no longer held here; fetch the routing table and "
                                  "send again")),
                              &effects->ended);
  {
    absl::MutexLock shard_lock(&engine->second->mutex);
    engine->second->link.Close(
        absl::NotFoundError(absl::StrCat(NameOf(key), " is no longer held here")), &effects->ended);
  }
  if (state_->options.log != nullptr) state_->options.log->Forget(state_->options.job, key);
  state_->snapshots.ShardGone(key, state_->tables);
  state_->tables.Remove(key);
  return state_->engines.erase(engine);
}

void JobAssignment::SetMembership(const Membership& membership) {
  JobEffects effects;
  {
    absl::MutexLock lock(&state_->mutex);
    if (membership.generation > state_->membership.generation) state_->membership = membership;
    state_->key_lists.SetMembership(state_->membership);
    CallSink sink(state_, &effects.ended);
    for (const auto& [key, engine] : state_->engines) {
      absl::MutexLock shard_lock(&engine->mutex);
      if (engine->link.is_primary()) state_->tables.SetMembership(key, state_->membership, sink);
    }
    commits_->SettleLocked(sink, &effects);
  }
  commits_->Perform(&effects);
}

void JobAssignment::SetReadLease(Instant until) {
  absl::MutexLock lock(&state_->mutex);
  state_->routing.SetReadLease(until);
}

Generation JobAssignment::routing_generation() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->routing.generation();
}

Generation JobAssignment::membership_generation() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->membership.generation;
}

v1::RoutingTable JobAssignment::routing() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->routing_table;
}

}  // namespace capstan::server
