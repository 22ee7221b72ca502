// ShardMap: facts, deaths and views. shard_map_placing.cc has the placement of copies.
#include "scheduler/core/shards/shard_map.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"

namespace capstan::scheduler {

ShardMap::ShardMap(const Routing& routing, const Options& options)
    : options_(options), generation_(routing.generation), routing_(routing) {
  for (const ServerRef& server : routing.servers) {
    servers_.Set(server, /*draining=*/false);
    servers_.AddMember(server.node);
  }
  const auto server_at = [&](int index) { return routing.servers[static_cast<size_t>(index)]; };
  for (const ShardRoute& route : routing.shards) {
    ShardCopies shard;
    shard.key = route.key;
    shard.elements = route.elements;
    shard.primary = server_at(route.server);
    shard.term = route.term;
    for (const ReplicaRef& replica : route.replicas) {
      shard.replicas.push_back({server_at(replica.server), replica.in_sync, routing.generation});
    }
    shards_.push_back(std::move(shard));
  }
}

absl::Status ShardMap::Check() const {
  absl::Status status = CheckCount("generation", generation_.value());
  const auto shards = static_cast<int64_t>(routing_.shards.size());
  status.Update(CheckRange("shards", static_cast<int64_t>(shards_.size()), shards, shards));
  for (size_t i = 0; status.ok() && i < shards_.size(); ++i) {
    const ShardCopies& shard = shards_[i];
    const ShardRoute& route = routing_.shards[i];
    std::set<NodeId> nodes = {shard.primary.node};
    for (const ReplicaCopy& copy : shard.replicas) nodes.insert(copy.server.node);
    const bool apart = nodes.size() == 1 + shard.replicas.size();
    if (apart && shard.key == route.key && shard.elements == route.elements) continue;
    status = absl::DataLossError(absl::StrCat(
        "table ", route.key.table.value(), " shard ", route.key.shard.value(), ": expected ",
        apart ? "the shard that its routing table has" : "each copy on a server of its own"));
  }
  status.Update(servers_.Check());
  return status;
}

// ---------------------------------------------------------------- look-ups

ShardCopies* ShardMap::Find(const ShardKey& key) {
  const auto it =
      std::lower_bound(shards_.begin(), shards_.end(), key,
                       [](const ShardCopies& shard, const ShardKey& k) { return shard.key < k; });
  return it != shards_.end() && it->key == key ? &*it : nullptr;
}

// ---------------------------------------------------------------- facts

void ShardMap::SetServer(const ServerRef& server, bool draining) {
  if (servers_.Set(server, draining)) settled_ = false;
}

void ShardMap::SetStored(const NodeId& server, absl::Span<const StoredShard> stored,
                         const std::string& unique_id) {
  if (servers_.SetStored(server, routing_.job, unique_id, stored)) settled_ = false;
}

void ShardMap::ServerDied(const NodeId& server, Instant fenced_at) {
  if (const Server* const dead = servers_.Find(server)) {
    for (ShardCopies& shard : shards_) {
      if (shard.primary == dead->ref) shard.fenced_at = fenced_at;
      shard.left.erase(server);
    }
    settled_ = false;
  }
  servers_.Died(server);
}

void ShardMap::ServerFailed(const NodeId& server, Instant now) {
  const Server* const failed = servers_.Find(server);
  if (failed == nullptr) return;
  const ServerRef ref = failed->ref;
  ServerDied(server, now);
  servers_.SetFailed(ref);
}

void ShardMap::Adopt(Instant now) {
  servers_.Clear();
  for (ShardCopies& shard : shards_) {
    shard.fenced_at = now;
    shard.left.clear();
  }
  generation_ = Generation(generation_.value() + kGenerationsPerAdoption);
  adopted_at_ = generation_;
  settled_ = false;
}

void ShardMap::SetAvoided(const std::set<NodeId>& servers) {
  if (servers_.SetAvoided(servers)) settled_ = false;
}

void ShardMap::NoteApplied(const NodeId& server, Generation table) {
  if (servers_.NoteApplied(server, table)) settled_ = false;
}

void ShardMap::OnTableReport(const NodeId& server, const TableReport& report) {
  const Server* const sender = servers_.Find(server);
  if (sender == nullptr) return;
  NoteApplied(server, report.routing);
  if (report.logs_begun) NoteLogsBegun(sender->ref, report.routing);
  for (const ReplicaReport& replica : report.replicas) {
    TakeReplicaReport(*sender, report.routing, replica);
  }
}

// A late report describes the logs under an earlier table.
void ShardMap::NoteLogsBegun(const ServerRef& server, Generation applied) {
  for (ShardCopies& shard : shards_) {
    const bool read = applied >= Generation(shard.term.value());
    if (!read || shard.lost || shard.primary != server || !shard.awaits_log()) continue;
    shard.writers.clear();
    shard.logs.clear();
    changed_ = true;
    settled_ = false;
  }
}

void ShardMap::TakeReplicaReport(const Server& server, Generation applied,
                                 const ReplicaReport& report) {
  ShardCopies* shard = Find(report.shard);
  if (shard == nullptr || shard->primary != server.ref || report.term != shard->term) return;
  ReplicaCopy* copy = shard->FindReplica(report.node);
  if (copy == nullptr || copy->server.incarnation != report.incarnation) return;
  if (applied < copy->placed) return;  // The report is about an earlier copy on that node.
  if (report.state == ReplicaReport::State::kUnreachable) {
    shard->avoid = report.node;
    DropReplica(*shard, report.node);
  } else if (!copy->in_sync) {
    copy->in_sync = true;
    if (shard->avoid == report.node) shard->avoid.clear();
  } else {
    return;
  }
  changed_ = true;
  settled_ = false;
}

// ---------------------------------------------------------------- deaths and lost shards

bool ShardMap::Settle(Instant now) {
  if (settled_ && now < deadline_) return false;
  settled_ = true;
  deadline_ = Instant::InfiniteFuture();
  ChooseGood();
  CountLoads();
  has_lost_ = false;
  for (ShardCopies& shard : shards_) {
    BuryDead(shard, now);
    has_lost_ = has_lost_ || shard.lost;
  }
  ChooseGood();  // Holders of newly lost shards get no copies.
  for (ShardCopies& shard : shards_) {
    if (IsServed(shard)) HandOver(shard);
  }
  for (ShardCopies& shard : shards_) {
    if (IsServed(shard)) Trim(shard);
  }
  PlanMoves(now);
  PlaceMissing();
  if (!changed_) return false;
  changed_ = false;
  ++generation_;
  RenderRouting(shards_, generation_, &routing_);
  return true;
}

Instant ShardMap::NextDeadline() const { return deadline_; }

void ShardMap::BuryDead(ShardCopies& shard, Instant now) {
  if (shard.lost) return;
  const bool served = Lives(shard.primary);
  const NodeId heir = served ? NodeId() : BestReplica(shard);
  if (!served && heir.empty()) {
    shard.lost = true;
    shard.move_to.clear();
    shard.moves_from = Generation();
    // The dead replicas in sync stay, because they are the last ones that held the whole shard.
    if (std::erase_if(shard.replicas, [](const ReplicaCopy& copy) { return !copy.in_sync; }) > 0) {
      changed_ = true;
    }
    shard.writers.try_emplace(shard.primary.node, shard.primary.incarnation);
    for (const ReplicaCopy& copy : shard.replicas) {
      shard.writers.try_emplace(copy.server.node, copy.server.incarnation);
    }
    return;
  }
  if (std::erase_if(shard.replicas,
                    [this](const ReplicaCopy& copy) { return !Lives(copy.server); }) > 0) {
    changed_ = true;
  }
  if (!shard.move_to.empty() && !servers_.IsGood(shard.move_to)) shard.move_to.clear();
  if (served) return;
  if (now < shard.fenced_at) {
    deadline_ = std::min(deadline_, shard.fenced_at);
  } else {
    Promote(shard, heir);
  }
}

// Returns the replica in sync whose server has the fewest primaries; drained servers come last.
NodeId ShardMap::BestReplica(const ShardCopies& shard) const {
  NodeId best;
  std::tuple<bool, int> best_rank;
  for (const ReplicaCopy& copy : shard.replicas) {
    const NodeId& node = copy.server.node;
    const bool in_sync = copy.in_sync || Planted(PlantedBug::kPromoteStaleReplica);
    if (!in_sync || !Lives(copy.server)) continue;
    const auto load = loads_.find(node);
    const std::tuple<bool, int> rank = {servers_.IsToBeLeft(node),
                                        load == loads_.end() ? 0 : load->second.primaries};
    if (!best.empty() && best_rank <= rank) continue;
    best = node;
    best_rank = rank;
  }
  return best;
}

void ShardMap::Promote(ShardCopies& shard, const NodeId& node) {
  const ServerRef old = shard.primary;
  const ReplicaCopy* heir = shard.FindReplica(node);
  shard.primary = heir->server;
  shard.term = Term(Next().value());
  std::erase_if(shard.replicas,
                [&node](const ReplicaCopy& copy) { return copy.server.node == node; });
  shard.move_to.clear();
  shard.moves_from = Generation();
  if (Lives(old)) shard.left[old.node] = Next();
  --loads_[old.node].primaries;
  ++loads_[node].primaries;
  changed_ = true;
}

std::vector<ShardMap::Lost> ShardMap::LostShards() const {
  std::vector<Lost> lost;
  for (const ShardCopies& shard : shards_) {
    if (!shard.lost) continue;
    lost.push_back({shard.key, shard.Holders()});
  }
  return lost;
}

std::vector<ShardMap::Lost> ShardMap::WithoutLog() const {
  std::vector<Lost> without;
  for (const ShardCopies& shard : shards_) {
    if (shard.lost && LogHolder(shard) == nullptr) without.push_back({shard.key, shard.Holders()});
  }
  return without;
}

// Returns the holder whose log reaches furthest. If two are equal, it is the earlier one of
// Holders(), the primary first. Logs from before the job went back to a checkpoint do not count.
const ShardMap::Server* ShardMap::LogHolder(const ShardCopies& shard) const {
  const Server* best = nullptr;
  JobServers::LogEnd best_end;
  for (const NodeId& node : shard.Holders()) {
    const Server* const server = servers_.Find(node);
    if (server == nullptr) continue;
    const auto stored = server->stored.find(shard.key);
    if (stored == server->stored.end()) continue;
    if (stored->second.term < restore_term_ || shard.IsOfOlderDisk(node, stored->second)) continue;
    if (best != nullptr && !stored->second.ReachesBeyond(best_end)) continue;
    best = server;
    best_end = stored->second;
  }
  return best;
}

// The other holders become replicas that must be filled, so that they keep their logs for now.
void ShardMap::TakeFromLog(ShardCopies& shard) {
  const ServerRef holder = LogHolder(shard)->ref;
  shard.logs = shard.Holders();
  std::erase(shard.logs, holder.node);
  shard.primary = holder;
  shard.replicas.clear();
  for (const NodeId& node : shard.logs) {
    const Server* const server = servers_.Find(node);
    if (server == nullptr) continue;
    shard.replicas.push_back({.server = server->ref, .in_sync = false, .placed = Next()});
  }
  std::sort(
      shard.replicas.begin(), shard.replicas.end(),
      [](const ReplicaCopy& a, const ReplicaCopy& b) { return a.server.node < b.server.node; });
  shard.left.clear();
  shard.lost = false;
}

bool ShardMap::RecoverFromLog(Instant now) {
  for (const ShardCopies& shard : shards_) {
    if (!shard.lost) continue;
    if (now < shard.fenced_at) deadline_ = std::min(deadline_, shard.fenced_at);
    if (now < shard.fenced_at || LogHolder(shard) == nullptr) return false;
  }
  for (ShardCopies& shard : shards_) {
    if (shard.lost) {
      TakeFromLog(shard);
    } else if (shard.term != log_term_ || !Lives(shard.primary) ||
               servers_.at(shard.primary.node).applied >= Generation(shard.term.value())) {
      continue;
    }
    // Shards whose logs were not read since the last recovery also get a new term, because there is
    // only one log_term.
    shard.term = Term(Next().value());
    servers_.AddMember(shard.primary.node);
  }
  has_lost_ = false;
  log_term_ = Term(Next().value());
  changed_ = true;
  settled_ = false;
  return true;
}

bool ShardMap::PlaceAnew() {
  if (servers_.AllDrained()) return false;
  std::vector<ShardCopies*> by_size;
  for (ShardCopies& shard : shards_) {
    shard.lost = false;
    shard.replicas.clear();
    shard.logs.clear();
    shard.writers.clear();
    shard.left.clear();
    shard.move_to.clear();
    shard.moves_from = Generation();
    shard.term = Term(Next().value());
    by_size.push_back(&shard);
  }
  ChooseGood();
  std::stable_sort(by_size.begin(), by_size.end(), [](const ShardCopies* a, const ShardCopies* b) {
    return a->elements.size() > b->elements.size();
  });
  std::map<NodeId, int64_t> elements;
  for (const NodeId& node : servers_.good()) elements[node] = 0;
  for (ShardCopies* shard : by_size) {
    const auto least =
        std::min_element(elements.begin(), elements.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    least->second += PlacementWeight(shard->elements);
    shard->primary = servers_.at(least->first).ref;
  }
  has_lost_ = false;
  restore_term_ = Term(Next().value());
  changed_ = true;
  settled_ = false;
  return true;
}

// ---------------------------------------------------------------- what is

int ShardMap::CopiesOn(const NodeId& server) const {
  const Server* const found = servers_.Find(server);
  if (found == nullptr) return 0;
  int count = 0;
  for (const ShardCopies& shard : shards_) {
    if (shard.primary == found->ref) ++count;
    for (const ReplicaCopy& copy : shard.replicas) {
      if (copy.server == found->ref) ++count;
    }
  }
  return count;
}

// A dead primary's log is needed even if a replica can take over, because the replica may be dead
// without the scheduler's knowledge.
bool ShardMap::NeedsLogOf(const NodeId& server) const {
  return std::any_of(shards_.begin(), shards_.end(), [&](const ShardCopies& shard) {
    if (!shard.lost) return shard.primary.node == server && !Lives(shard.primary);
    const std::vector<NodeId> holders = shard.Holders();
    return std::find(holders.begin(), holders.end(), server) != holders.end();
  });
}

std::map<NodeId, Generation> ShardMap::Primaries() const {
  std::map<NodeId, Generation> primaries;
  for (const ShardCopies& shard : shards_) {
    if (!Lives(shard.primary)) continue;
    Generation& since = primaries[shard.primary.node];
    since = std::max(since, Generation(shard.term.value()));
  }
  return primaries;
}

bool ShardMap::complete() const {
  return std::all_of(shards_.begin(), shards_.end(), [this](const ShardCopies& shard) {
    const int wanted = std::min(options_.replicas, Possible(shard));
    return IsServed(shard) && !servers_.IsToBeLeft(shard.primary.node) && shard.move_to.empty() &&
           static_cast<int>(shard.replicas.size()) == wanted &&
           GoodReplicas(shard, Count::kInSync) == wanted;
  });
}

}  // namespace capstan::scheduler
