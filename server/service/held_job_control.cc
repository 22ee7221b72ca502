// HeldJob: applies the scheduler's routing and membership, and ends what has reached its deadline.
#include <algorithm>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "server/service/held_job.h"
#include "server/service/held_job_sink.h"
#include "server/service/message_checks.h"

namespace capstan::server {
namespace {

HeldShard ShardOf(const v1::ShardRoute& route) {
  return {.key = KeyOf(route), .elements = {route.element_begin(), route.element_end()}};
}

// The first term is 1. A routing table that names no term is of the first.
Term TermOf(const v1::ShardRoute& route) { return Term(std::max<uint64_t>(1, route.term())); }

FollowerKey KeyOfServer(const v1::ServerAddress& server) {
  return {.node = server.node_id(), .incarnation = Incarnation(server.incarnation())};
}

bool IsServer(const v1::RoutingTable& routing, int server) {
  return server >= 0 && server < routing.servers_size();
}

bool IsOf(const ShardEngine& engine, const HeldShard& shard) {
  absl::MutexLock shard_lock(&engine.mutex);
  return engine.link.shard() == shard;
}

bool IsOf(const ShardEngine& engine, Term term) {
  absl::MutexLock shard_lock(&engine.mutex);
  return engine.link.replication().term() == term;
}

}  // namespace

bool HeldJob::IsSelf(const v1::RoutingTable& routing, int server) const {
  return IsServer(routing, server) &&
         KeyOfServer(routing.servers(server)) ==
             FollowerKey{.node = options_.node, .incarnation = options_.incarnation};
}

absl::StatusOr<std::vector<ShardOrder>> HeldJob::MissingShards(const v1::RoutingTable& routing,
                                                               const ShardSources& sources) const {
  absl::MutexLock lock(&mutex_);
  std::vector<ShardOrder> orders;
  if (routing.generation() <= routing_.generation()) return orders;
  for (const v1::ShardRoute& route : routing.shards()) {
    if (!IsSelf(routing, route.server())) continue;
    ShardOrder order{.shard = ShardOf(route), .term = TermOf(route)};
    const Held held = HeldLocked(order.shard);
    if (order.term == sources.restore_term) {
      if (held.is_primary && held.term == order.term) continue;
      order.from = ShardOrder::From::kCheckpoint;
    } else if (held.is_held) {
      continue;
    } else if (order.term == sources.log_term) {
      order.from = ShardOrder::From::kLog;
    } else if (order.term != Term(1)) {
      return absl::InternalError(absl::StrCat("routing generation ", routing.generation(),
                                              " gives this server ", NameOf(order.shard.key),
                                              ", whose values it has never held"));
    }
    orders.push_back(order);
  }
  return orders;
}

HeldJob::Held HeldJob::HeldLocked(const HeldShard& shard) const {
  const auto it = engines_.find(shard.key);
  if (it == engines_.end() || tables_.Find(shard.key) == nullptr) return {};
  absl::MutexLock shard_lock(&it->second->mutex);
  const ShardLink& link = it->second->link;
  if (link.shard() != shard) return {};
  return {.is_held = true, .is_primary = link.is_primary(), .term = link.replication().term()};
}

void HeldJob::ForgetForRestore(const v1::RoutingTable& routing, Term restore_term) {
  Effects effects;
  {
    absl::MutexLock lock(&mutex_);
    const bool anew = std::all_of(
        routing.shards().begin(), routing.shards().end(),
        [restore_term](const v1::ShardRoute& route) { return TermOf(route) == restore_term; });
    if (!closed_.ok() || routing.generation() <= routing_.generation()) return;
    if (restore_term == Term(0) || !anew) return;
    for (auto it = engines_.begin(); it != engines_.end();) {
      it = IsOf(*it->second, restore_term) ? std::next(it) : RemoveLocked(it, &effects);
    }
  }
  Perform(&effects);
}

void HeldJob::SetRouting(const v1::RoutingTable& routing, std::vector<MadeShard> made) {
  Effects effects;
  {
    absl::MutexLock lock(&mutex_);
    if (!closed_.ok() || routing.generation() <= routing_.generation()) return;
    routing_ = routing;
    timeline_ = membership_.incarnation_floor.value();
    MadeFrom made_from;
    for (MadeShard& each : made) {
      const ShardKey key = each.order.shard.key;
      EndWaitingForLocked(key,
                          absl::FailedPreconditionError(
                              absl::StrCat(NameOf(key), " begins anew; fetch the routing table")),
                          &effects);
      snapshots_.ShardGone(key, tables_);
      tables_.Put(key, std::move(each.shard));
      made_from[key] = each.order.from;
    }
    absl::btree_set<ShardKey> named;
    for (const v1::ShardRoute& route : routing.shards()) {
      bool names_self = IsSelf(routing, route.server());
      for (const v1::ShardReplica& replica : route.replicas()) {
        names_self = names_self || IsSelf(routing, replica.server());
      }
      if (!names_self) continue;
      named.insert(KeyOf(route));
      SetRouteLocked(routing, route, made_from, &effects);
    }
    for (auto it = engines_.begin(); it != engines_.end();) {
      it = named.contains(it->first) ? std::next(it) : RemoveLocked(it, &effects);
    }
    SettleLogsLocked(&effects);
  }
  Perform(&effects);
}

void HeldJob::SetRouteLocked(const v1::RoutingTable& routing, const v1::ShardRoute& route,
                             const MadeFrom& made, Effects* effects) {
  const ShardKey key = KeyOf(route);
  const HeldShard shard = ShardOf(route);
  ShardEngine& engine = MakeEngineLocked(shard, effects);
  if (IsSelf(routing, route.server()) && tables_.Find(key) == nullptr) {
    failure_ = absl::InternalError(
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
        in_log = tables_.Find(key)->core().position();
      }
      link.MadeAnew(in_log);
    }
    was_primary = link.is_primary();
    SetRole(routing, route, link, effects);
    is_primary = link.is_primary();
  }
  if (was_primary && !is_primary) {
    tables_.at(key).ForgetCaptures();
    EndWaitingForLocked(key,
                        absl::FailedPreconditionError(
                            absl::StrCat(NameOf(key),
                                         " has another primary now; fetch the routing table "
                                         "and send again")),
                        effects);
  }
  if (!is_primary) return;
  Sink sink(this, &effects->ended);
  {
    absl::MutexLock shard_lock(&engine.mutex);
    tables_.SetMembership(key, membership_, sink);
  }
  sink.Touch(key);
  SettleLocked(sink, effects);
}

ShardEngine& HeldJob::MakeEngineLocked(const HeldShard& shard, Effects* effects) {
  auto it = engines_.find(shard.key);
  if (it != engines_.end() && !IsOf(*it->second, shard)) {  // The table was cut anew.
    RemoveLocked(it, effects);
    it = engines_.end();
  }
  if (it == engines_.end()) {
    auto made = std::make_unique<ShardEngine>(&link_options_, shard, ++engines_made_);
    it = engines_.insert({shard.key, std::move(made)}).first;
  }
  return *it->second;
}

void HeldJob::SetRole(const v1::RoutingTable& routing, const v1::ShardRoute& route, ShardLink& link,
                      Effects* effects) {
  RoleRoute role{.generation = Generation(routing.generation()),
                 .role = ShardRole::kReplica,
                 .term = TermOf(route),
                 .followers = {}};
  absl::btree_map<FollowerKey, v1::ServerAddress> servers;
  if (IsSelf(routing, route.server())) {
    role.role = ShardRole::kPrimary;
    role.hands_over = route.hands_over();
    role.awaits_log = route.awaits_log();
    for (const v1::ShardReplica& replica : route.replicas()) {
      if (!IsServer(routing, replica.server())) continue;
      const v1::ServerAddress& server = routing.servers(replica.server());
      role.followers.push_back({.key = KeyOfServer(server), .in_sync = replica.in_sync()});
      servers[KeyOfServer(server)] = server;
    }
  }
  link.SetRole(role, std::move(servers), tables_.Find(link.shard().key), &effects->ended);
}

HeldJob::Engines::iterator HeldJob::RemoveLocked(Engines::iterator engine, Effects* effects) {
  const ShardKey key = engine->first;
  EndWaitingForLocked(key,
                      absl::FailedPreconditionError(
                          absl::StrCat(NameOf(key),
                                       " is no longer held here; fetch the routing table and "
                                       "send again")),
                      effects);
  {
    absl::MutexLock shard_lock(&engine->second->mutex);
    engine->second->link.Close(
        absl::NotFoundError(absl::StrCat(NameOf(key), " is no longer held here")), &effects->ended);
  }
  if (options_.log != nullptr) options_.log->Forget(options_.job, key);
  snapshots_.ShardGone(key, tables_);
  tables_.Remove(key);
  return engines_.erase(engine);
}

void HeldJob::SetMembership(const Membership& membership) {
  Effects effects;
  {
    absl::MutexLock lock(&mutex_);
    if (membership.generation > membership_.generation) membership_ = membership;
    key_lists_.SetMembership(membership_);
    Sink sink(this, &effects.ended);
    for (const auto& [key, engine] : engines_) {
      absl::MutexLock shard_lock(&engine->mutex);
      if (engine->link.is_primary()) tables_.SetMembership(key, membership_, sink);
    }
    SettleLocked(sink, &effects);
  }
  Perform(&effects);
}

void HeldJob::SetReadLease(Instant until) {
  absl::MutexLock lock(&mutex_);
  read_lease_ = std::max(read_lease_, until);
}

void HeldJob::Fail(const absl::Status& status) {
  Effects effects;
  {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return;
    failure_ = status;
    for (const CallId call : calls_.All()) EndLocked(call, status, &effects);
    effects.report = true;
  }
  Perform(&effects);
}

Instant HeldJob::Tick(Instant now) {
  Effects effects;
  Instant next;
  {
    absl::MutexLock lock(&mutex_);
    AskForTick(Instant::InfiniteFuture());
    Sink sink(this, &effects.ended);
    tables_.Tick(now, sink);
    snapshots_.Tick(now, tables_);
    SettleLocked(sink, &effects);
    for (const auto& [key, engine] : engines_) {
      absl::MutexLock shard_lock(&engine->mutex);
      ShardLink& link = engine->link;
      if (!link.holds_replies() || !link.is_primary()) continue;
      link.replication().Tick(now);
      SettleLinkLocked(link, &effects);
    }
    effects.tick.reset();
    next = NextDeadlineLocked();
    AskForTick(next);
  }
  Perform(&effects);
  return next;
}

Instant HeldJob::NextDeadline() const {
  absl::MutexLock lock(&mutex_);
  return NextDeadlineLocked();
}

Instant HeldJob::NextDeadlineLocked() const {
  Instant next = snapshots_.NextDeadline();
  if (!calls_.empty()) next = std::min(next, tables_.NextDeadline());
  for (const auto& [key, engine] : engines_) {
    absl::MutexLock shard_lock(&engine->mutex);
    next = std::min(next, NextDeadlineOf(engine->link.replication()));
  }
  return next;
}

void HeldJob::AskForTick(Instant at) {
  absl::MutexLock lock(&tick_mutex_);
  tick_asked_ = at;
}

void HeldJob::TickAt(Instant at, Effects* effects) {
  absl::MutexLock lock(&tick_mutex_);
  if (at >= tick_asked_) return;
  tick_asked_ = at;
  effects->tick = at;
}

void HeldJob::Close(const absl::Status& reason) {
  Effects effects;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = reason;
    for (const CallId call : calls_.All()) EndLocked(call, reason, &effects);
    for (const auto& [key, engine] : engines_) {
      absl::MutexLock shard_lock(&engine->mutex);
      engine->link.Close(reason, &effects.ended);
    }
  }
  Perform(&effects);
}

std::vector<HeldCopy> HeldJob::Copies() const {
  absl::MutexLock lock(&mutex_);
  std::vector<HeldCopy> copies;
  if (!tables_.failure().ok()) return copies;  // A push may have changed half of a shard.
  for (const auto& [key, engine] : engines_) {
    absl::MutexLock shard_lock(&engine->mutex);
    const TableShard* held = tables_.Find(key);
    const Term term = engine->link.replication().held_term();
    if (held == nullptr || term == Term(0)) continue;
    absl::StatusOr<v1::ShardSnapshot> copy = held->Snapshot();
    if (copy.ok()) copies.push_back({key, term, *std::move(copy)});
  }
  return copies;
}

bool HeldJob::logs_begun() const {
  absl::MutexLock lock(&mutex_);
  return LogsBegunLocked();
}

Generation HeldJob::routing_generation() const {
  absl::MutexLock lock(&mutex_);
  return Generation(routing_.generation());
}

Generation HeldJob::membership_generation() const {
  absl::MutexLock lock(&mutex_);
  return membership_.generation;
}

Version HeldJob::version_max() const {
  absl::MutexLock lock(&mutex_);
  Version highest;
  for (const ShardKey& key : PrimariesLocked()) {
    highest = std::max(highest, tables_.Find(key)->core().version());
  }
  return highest;
}

v1::RoutingTable HeldJob::routing() const {
  absl::MutexLock lock(&mutex_);
  return routing_;
}

absl::Status HeldJob::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_.ok() ? tables_.failure() : failure_;
}

std::vector<HeldShard> HeldJob::shards() const {
  absl::MutexLock lock(&mutex_);
  std::vector<HeldShard> shards;
  for (const auto& [key, engine] : engines_) {
    absl::MutexLock shard_lock(&engine->mutex);
    if (engine->link.is_primary()) shards.push_back(engine->link.shard());
  }
  return shards;
}

std::vector<ShardKey> HeldJob::PrimariesLocked() const {
  std::vector<ShardKey> keys;
  for (const auto& [key, engine] : engines_) {
    absl::MutexLock shard_lock(&engine->mutex);
    if (engine->link.is_primary()) keys.push_back(key);
  }
  return keys;
}

std::vector<v1::ReplicaState> HeldJob::ReplicaStates() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::ReplicaState> states;
  for (const auto& [key, engine] : engines_) {
    absl::MutexLock shard_lock(&engine->mutex);
    for (v1::ReplicaState& state : engine->link.Reports()) states.push_back(std::move(state));
  }
  return states;
}

v1::KeyListCounts HeldJob::key_list_counts() const { return key_lists_.counts(); }

std::vector<v1::HeldTable> HeldJob::Describe() const {
  absl::MutexLock lock(&mutex_);
  const std::vector<ShardKey> keys = PrimariesLocked();
  const absl::btree_set<ShardKey> primaries(keys.begin(), keys.end());
  std::vector<v1::HeldTable> tables =
      tables_.Describe([&](const ShardKey& key) { return primaries.contains(key); });
  for (v1::HeldTable& table : tables) table.set_job_id(options_.job);
  return tables;
}

}  // namespace capstan::server
