#include "server/core/replication/job_routing.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace capstan::server {

absl::StatusOr<std::vector<ShardOrder>> JobRouting::MissingShards(
    const RoutingTable& table, const ShardSources& sources,
    const std::function<ShardState(const HeldShard&)>& state_of) const {
  std::vector<ShardOrder> orders;
  for (const ShardRoute& route : table.shards) {
    if (route.primary != self_) continue;
    ShardOrder order{.shard = route.shard, .term = route.term};
    const ShardState state = state_of(route.shard);
    if (order.term == sources.restore_term) {
      if (state.is_primary && state.term == order.term) continue;
      order.from = ShardOrder::From::kCheckpoint;
    } else if (state.is_held) {
      continue;
    } else if (order.term == sources.log_term) {
      order.from = ShardOrder::From::kLog;
    } else if (order.term != Term(1)) {
      return absl::InternalError(absl::StrCat("routing generation ", table.generation.value(),
                                              " gives this server ", NameOf(order.shard.key),
                                              ", whose values it has never held"));
    }
    orders.push_back(order);
  }
  return orders;
}

std::vector<RoutedShard> JobRouting::Take(const RoutingTable& table,
                                          Incarnation incarnation_floor) {
  generation_ = table.generation;
  timeline_ = incarnation_floor;
  std::vector<RoutedShard> routed;
  for (const ShardRoute& route : table.shards) {
    RoleRoute role{.generation = table.generation,
                   .role = ShardRole::kReplica,
                   .term = route.term,
                   .primary = route.primary ? route.primary->node : NodeId(),
                   .followers = {}};
    if (route.primary == self_) {
      role.role = ShardRole::kPrimary;
      role.followers = route.replicas;
      role.hands_over = route.hands_over;
      role.awaits_log = route.awaits_log;
    } else if (std::none_of(route.replicas.begin(), route.replicas.end(),
                            [&](const FollowerRoute& each) { return each.key == self_; })) {
      continue;
    }
    routed.push_back({.shard = route.shard, .role = std::move(role)});
  }
  return routed;
}

void JobRouting::SetReadLease(Instant until) { read_lease_ = std::max(read_lease_, until); }

bool AllBeginAnew(const RoutingTable& table, Term term) {
  return term != Term(0) &&
         std::all_of(table.shards.begin(), table.shards.end(),
                     [term](const ShardRoute& route) { return route.term == term; });
}

}  // namespace capstan::server
