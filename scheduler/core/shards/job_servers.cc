#include "scheduler/core/shards/job_servers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace capstan::scheduler {

absl::Status JobServers::Check() const {
  for (const auto& [name, server] : servers_) {
    if (server.ref.node == name) continue;
    return absl::DataLossError(
        absl::StrCat("server \"", server.ref.node, "\", expected \"", name, "\""));
  }
  return absl::OkStatus();
}

bool JobServers::Set(const ServerRef& server, bool draining) {
  if (const auto failed = failed_.find(server.node); failed != failed_.end()) {
    if (failed->second == server.incarnation) return false;
    failed_.erase(failed);
  }
  Server& entry = servers_[server.node];
  if (entry.ref == server && entry.draining == draining) return false;
  entry.ref = server;
  entry.draining = draining;
  return true;
}

bool JobServers::SetStored(const NodeId& server, const JobId& job, const std::string& unique_id,
                           absl::Span<const StoredShard> stored) {
  const auto it = servers_.find(server);
  if (it == servers_.end()) return false;
  it->second.stored.clear();
  for (const StoredShard& shard : stored) {
    if (shard.job != job || shard.unique_id != unique_id) continue;
    it->second.stored[shard.shard] = {shard.term, shard.position, shard.incarnation};
  }
  return true;
}

void JobServers::Died(const NodeId& server) {
  failed_.erase(server);
  servers_.erase(server);
}

void JobServers::SetFailed(const ServerRef& server) { failed_[server.node] = server.incarnation; }

bool JobServers::SetAvoided(const std::set<NodeId>& servers) {
  if (avoided_ == servers) return false;
  avoided_ = servers;
  return true;
}

bool JobServers::NoteApplied(const NodeId& server, Generation table) {
  const auto it = servers_.find(server);
  if (it == servers_.end() || table <= it->second.applied) return false;
  it->second.applied = table;
  return true;
}

void JobServers::Clear() {
  servers_.clear();
  failed_.clear();
  avoided_.clear();
}

void JobServers::Choose(int servers, int needed, const std::set<NodeId>& awaited) {
  // If all servers are drained or avoided, an avoided server is better than none.
  const bool all_left = std::all_of(servers_.begin(), servers_.end(),
                                    [this](const auto& entry) { return IsToBeLeft(entry.first); });
  if (all_left) avoided_.clear();
  const auto available = [&](const NodeId& node) {
    return !IsToBeLeft(node) && !awaited.contains(node);
  };
  std::erase_if(members_, [this](const NodeId& node) { return !servers_.contains(node); });
  good_.clear();
  for (const auto& [node, server] : servers_) {
    if (servers == 0) members_.insert(node);
    if (members_.contains(node) && available(node)) good_.insert(node);
  }
  const auto wanted = static_cast<size_t>(std::max(servers, needed));
  for (const auto& [node, server] : servers_) {
    if (good_.size() >= wanted) return;
    if (!available(node) || good_.contains(node)) continue;
    members_.insert(node);
    good_.insert(node);
  }
}

const JobServers::Server* JobServers::Find(const NodeId& server) const {
  const auto it = servers_.find(server);
  return it == servers_.end() ? nullptr : &it->second;
}

bool JobServers::Lives(const ServerRef& server) const {
  const Server* const found = Find(server.node);
  return found != nullptr && found->ref.incarnation == server.incarnation;
}

bool JobServers::IsToBeLeft(const NodeId& server) const {
  const Server* const found = Find(server);
  return found != nullptr && (found->draining || avoided_.contains(server));
}

bool JobServers::HasAnother(const NodeId& than) const {
  return std::any_of(servers_.begin(), servers_.end(), [&](const auto& entry) {
    return entry.first != than && !IsToBeLeft(entry.first);
  });
}

bool JobServers::AllDrained() const {
  return std::all_of(servers_.begin(), servers_.end(),
                     [](const auto& entry) { return entry.second.draining; });
}

}  // namespace capstan::scheduler
