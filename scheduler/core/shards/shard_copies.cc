#include "scheduler/core/shards/shard_copies.h"

#include <algorithm>
#include <utility>

#include "common/planted/planted_bug.h"

namespace capstan::scheduler {

ReplicaCopy* ShardCopies::FindReplica(const NodeId& node) {
  for (ReplicaCopy& copy : replicas) {
    if (copy.server.node == node) return &copy;
  }
  return nullptr;
}

bool ShardCopies::HasCopyOn(const NodeId& node) const {
  return primary.node == node ||
         std::any_of(replicas.begin(), replicas.end(),
                     [&node](const ReplicaCopy& copy) { return copy.server.node == node; });
}

bool ShardCopies::HasLeavingReplica() const {
  return std::any_of(replicas.begin(), replicas.end(),
                     [](const ReplicaCopy& copy) { return copy.leaves.value() > 0; });
}

void ShardCopies::AddReplica(const ReplicaCopy& copy) {
  const auto after = std::find_if(
      replicas.begin(), replicas.end(),
      [&copy](const ReplicaCopy& other) { return other.server.node > copy.server.node; });
  replicas.insert(after, copy);
}

std::vector<NodeId> ShardCopies::Holders() const {
  std::vector<NodeId> holders = {primary.node};
  for (const ReplicaCopy& copy : replicas) holders.push_back(copy.server.node);
  for (const NodeId& node : logs) {
    if (std::find(holders.begin(), holders.end(), node) == holders.end()) holders.push_back(node);
  }
  return holders;
}

bool ShardCopies::IsOfOlderDisk(const NodeId& node, const JobServers::LogEnd& log) const {
  const auto writer = writers.find(node);
  return writer != writers.end() && log.incarnation < writer->second &&
         !Planted(PlantedBug::kReadOlderDisk);
}

void RenderRouting(const std::vector<ShardCopies>& shards, Generation generation,
                   Routing* routing) {
  // Servers are ordered by name. The dead server of a lost shard may stand beside its new
  // incarnation.
  using NodeIncarnation = std::pair<NodeId, Incarnation>;
  std::map<NodeIncarnation, int> index;
  const auto key_of = [](const ServerRef& server) {
    return NodeIncarnation(server.node, server.incarnation);
  };
  std::map<NodeIncarnation, ServerRef> used;
  for (const ShardCopies& shard : shards) {
    used[key_of(shard.primary)] = shard.primary;
    for (const ReplicaCopy& copy : shard.replicas) used[key_of(copy.server)] = copy.server;
  }
  routing->generation = generation;
  routing->servers.clear();
  for (const auto& [key, server] : used) {
    index[key] = static_cast<int>(routing->servers.size());
    routing->servers.push_back(server);
  }
  routing->shards.clear();
  for (const ShardCopies& shard : shards) {
    ShardRoute route{.key = shard.key,
                     .elements = shard.elements,
                     .server = index.at(key_of(shard.primary)),
                     .term = shard.term,
                     .replicas = {},
                     .hands_over = shard.moves_from.value() > 0,
                     .awaits_log = shard.awaits_log()};
    for (const ReplicaCopy& copy : shard.replicas) {
      route.replicas.push_back({index.at(key_of(copy.server)), copy.in_sync});
    }
    routing->shards.push_back(std::move(route));
  }
}

}  // namespace capstan::scheduler
