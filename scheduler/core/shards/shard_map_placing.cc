// ShardMap: the placement of copies. It chooses servers, places missing replicas and moves copies.
#include <algorithm>
#include <tuple>

#include "common/planted/planted_bug.h"
#include "scheduler/core/shards/shard_map.h"

namespace capstan::scheduler {

// ---------------------------------------------------------------- servers

void ShardMap::ChooseGood() {
  std::set<NodeId> awaited;  // Holders of lost shards, whose logs may be needed.
  for (const ShardCopies& shard : shards_) {
    if (!shard.lost) continue;
    for (const NodeId& node : shard.Holders()) awaited.insert(node);
  }
  servers_.Choose(options_.servers, options_.replicas + 1, awaited);
}

void ShardMap::CountLoads() {
  loads_.clear();
  for (const ShardCopies& shard : shards_) {
    if (shard.lost) continue;
    Load& primary = loads_[shard.primary.node];
    ++primary.primaries;
    ++primary.copies;
    const bool moves = !shard.move_to.empty();
    loads_[moves ? shard.move_to : shard.primary.node].elements += PlacementWeight(shard.elements);
    for (const ReplicaCopy& copy : shard.replicas) {
      Load& load = loads_[copy.server.node];
      ++load.copies;
      if (!copy.in_sync) ++load.filling;
    }
  }
}

int ShardMap::GoodReplicas(const ShardCopies& shard, Count count) const {
  return static_cast<int>(
      std::count_if(shard.replicas.begin(), shard.replicas.end(), [&](const ReplicaCopy& copy) {
        return servers_.IsGood(copy.server.node) && (copy.in_sync || count == Count::kAll);
      }));
}

int ShardMap::Wanted(const ShardCopies& shard) const {
  const bool moves = servers_.IsToBeLeft(shard.primary.node) || !shard.move_to.empty();
  return options_.replicas + (moves ? 1 : 0);
}

int ShardMap::Possible(const ShardCopies& shard) const {
  return static_cast<int>(servers_.good().size()) - (servers_.IsGood(shard.primary.node) ? 1 : 0);
}

// ---------------------------------------------------------------- moving

void ShardMap::DropReplica(ShardCopies& shard, const NodeId& node) {
  std::erase_if(shard.replicas,
                [&node](const ReplicaCopy& copy) { return copy.server.node == node; });
  shard.left[node] = Next();
  if (shard.move_to == node) shard.move_to.clear();
  changed_ = true;
}

// A drained server hands a shard over even if there are too few servers for all replicas. A move
// for balance never reduces the number of replicas.
void ShardMap::HandOver(ShardCopies& shard) {
  const NodeId next = NextPrimary(shard);
  if (next.empty()) {
    KeepPrimary(shard);
  } else {
    MovePrimary(shard, next);
  }
}

void ShardMap::KeepPrimary(ShardCopies& shard) {
  if (shard.moves_from.value() == 0) return;
  shard.moves_from = Generation();
  changed_ = true;
}

NodeId ShardMap::NextPrimary(ShardCopies& shard) {
  const int in_sync = GoodReplicas(shard, Count::kInSync);
  if (servers_.IsToBeLeft(shard.primary.node)) {
    const int needed = std::min(options_.replicas + 1, Possible(shard));
    return in_sync >= std::max(needed, 1) ? BestReplica(shard) : NodeId();
  }
  if (Possible(shard) <= options_.replicas) shard.move_to.clear();
  if (shard.move_to.empty()) return NodeId();
  const ReplicaCopy* target = shard.FindReplica(shard.move_to);
  const bool filled = target != nullptr && target->in_sync;
  return filled && in_sync > options_.replicas ? shard.move_to : NodeId();
}

// The next primary may be dead without the scheduler's knowledge. So the former one stays until the
// next one has applied a table from the time of the move. The former primary may not learn of its
// replacement while its read lease lasts. So it must have applied such a table, too; with that it
// asks its replicas before it answers.
void ShardMap::MovePrimary(ShardCopies& shard, const NodeId& to) {
  if (shard.moves_from.value() == 0) {
    shard.moves_from = Next();
    changed_ = true;
  }
  const auto heard = [&](const NodeId& node) {
    return servers_.at(node).applied >= shard.moves_from;
  };
  const bool both = heard(to) && heard(shard.primary.node);
  if (both || Planted(PlantedBug::kLetGoUnheard)) Promote(shard, to);
}

// Drops replicas on drained servers when enough others are filled, and drops surplus replicas.
void ShardMap::Trim(ShardCopies& shard) {
  const int needed = std::min(Wanted(shard), Possible(shard));
  const bool enough = GoodReplicas(shard, Count::kInSync) >= needed;
  std::vector<NodeId> go;
  for (const ReplicaCopy& copy : shard.replicas) {
    if (!servers_.IsGood(copy.server.node) && (enough || !copy.in_sync))
      go.push_back(copy.server.node);
  }
  std::vector<const ReplicaCopy*> good;  // Sorted: the first ones are dropped first.
  for (const ReplicaCopy& copy : shard.replicas) {
    if (servers_.IsGood(copy.server.node)) good.push_back(&copy);
  }
  const auto rank = [&](const ReplicaCopy* copy) {
    const NodeId& node = copy->server.node;
    return std::tuple(node != shard.move_to, !copy->in_sync, copy->leaves.value() > 0,
                      loads_[node].copies);
  };
  std::stable_sort(good.begin(), good.end(),
                   [&](const ReplicaCopy* a, const ReplicaCopy* b) { return rank(a) > rank(b); });
  const int spare = static_cast<int>(good.size()) - Wanted(shard);
  for (int i = 0; i < spare; ++i) go.push_back(good[static_cast<size_t>(i)]->server.node);
  for (ReplicaCopy& copy : shard.replicas) {
    if (std::find(go.begin(), go.end(), copy.server.node) == go.end()) copy.leaves = Generation();
  }
  for (const NodeId& node : go) LetGo(shard, *shard.FindReplica(node));
}

// The primary may be dead without the scheduler's knowledge, and this copy may be the last one. So
// the copy stays until the primary has applied a table from the time when it was no longer needed.
void ShardMap::LetGo(ShardCopies& shard, ReplicaCopy& copy) {
  if (copy.in_sync && copy.leaves.value() == 0) {
    copy.leaves = Next();
    changed_ = true;
  }
  const bool heard =
      servers_.at(shard.primary.node).applied >= copy.leaves || Planted(PlantedBug::kLetGoUnheard);
  if (!copy.in_sync || heard) DropReplica(shard, NodeId(copy.server.node));
}

// When all replicas are filled, moves primaries from the server with the most elements to the one
// with the least, a few at a time. If there is a server for one more copy, a copy is made first.
// Otherwise every server has all shards, and a primary swaps roles with a replica. Its shard cannot
// commit until the former primary is installed again, so only a few swap at a time.
void ShardMap::PlanMoves(Instant now) {
  const int spare = static_cast<int>(servers_.good().size()) - options_.replicas - 1;
  if (spare < 0 || servers_.good().size() < 2) return;
  int moving = 0;
  int64_t largest = 0;
  int64_t total = 0;
  for (const ShardCopies& shard : shards_) {
    if (!IsServed(shard) || GoodReplicas(shard, Count::kInSync) < options_.replicas) return;
    if (!shard.move_to.empty()) ++moving;
    largest = std::max(largest, PlacementWeight(shard.elements));
    total += PlacementWeight(shard.elements);
  }
  const int64_t bound =
      std::max(largest, total / (4 * static_cast<int64_t>(servers_.good().size())));
  for (; moving < options_.moves_max; ++moving) {
    CountLoads();
    const auto fewer = [this](const NodeId& a, const NodeId& b) {
      return loads_[a].elements < loads_[b].elements;
    };
    const NodeId least = *std::min_element(servers_.good().begin(), servers_.good().end(), fewer);
    const NodeId most = *std::max_element(servers_.good().begin(), servers_.good().end(), fewer);
    const int64_t spread = loads_[most].elements - loads_[least].elements;
    if (spread <= bound) return;
    if (spare == 0 && now < swaps_from_) {
      deadline_ = std::min(deadline_, swaps_from_);
      return;
    }
    ShardCopies* const shard = ChooseToMove(most, least, spread);
    if (shard == nullptr) return;
    if (spare > 0) {
      shard->move_to = least;
    } else {
      SwapPrimary(*shard, least);
      if (moving + 1 < options_.moves_max) continue;
      swaps_from_ = now + options_.swap_pause;
      deadline_ = std::min(deadline_, swaps_from_);
    }
  }
}

ShardCopies* ShardMap::ChooseToMove(const NodeId& from, const NodeId& to, int64_t spread) {
  ShardCopies* chosen = nullptr;
  for (ShardCopies& shard : shards_) {
    if (shard.primary.node != from || !shard.move_to.empty() || shard.HasLeavingReplica()) continue;
    if (PlacementWeight(shard.elements) >= spread) continue;  // It would reverse the imbalance.
    if (chosen == nullptr || (chosen->HasCopyOn(to) && !shard.HasCopyOn(to))) chosen = &shard;
  }
  return chosen;
}

// The former primary has all committed updates, like any replica in sync.
void ShardMap::SwapPrimary(ShardCopies& shard, const NodeId& to) {
  const ServerRef from = shard.primary;
  Promote(shard, to);
  shard.left.erase(from.node);
  AddReplica(shard, {.server = from, .in_sync = true, .placed = Next()});
}

// ---------------------------------------------------------------- missing replicas

// Places missing replicas. Shards with the fewest replicas in sync come first.
void ShardMap::PlaceMissing() {
  CountLoads();
  std::vector<ShardCopies*> missing;
  for (ShardCopies& shard : shards_) {
    if (IsServed(shard) && GoodReplicas(shard, Count::kAll) < Wanted(shard)) {
      missing.push_back(&shard);
    }
  }
  const auto in_sync = [this](const ShardCopies* s) { return GoodReplicas(*s, Count::kInSync); };
  std::stable_sort(missing.begin(), missing.end(), [&](const ShardCopies* a, const ShardCopies* b) {
    return in_sync(a) < in_sync(b);
  });
  for (ShardCopies* shard : missing) {
    while (GoodReplicas(*shard, Count::kAll) < Wanted(*shard) && PlaceOne(*shard)) {
    }
  }
}

bool ShardMap::PlaceOne(ShardCopies& shard) {
  const Generation known = servers_.at(shard.primary.node).applied;
  const bool move = !shard.move_to.empty() && !shard.HasCopyOn(shard.move_to);
  NodeId best;
  std::tuple<bool, int> best_rank;
  for (const NodeId& node : servers_.good()) {
    if (shard.HasCopyOn(node) || (move && node != shard.move_to)) continue;
    if (loads_[node].filling >= options_.filling_max) continue;
    // The primary has not yet applied the table in which the earlier copy on `node` left.
    if (const auto it = shard.left.find(node); it != shard.left.end() && it->second > known) {
      continue;
    }
    const std::tuple<bool, int> rank = {shard.avoid == node, loads_[node].copies};
    if (!best.empty() && best_rank <= rank) continue;
    best = node;
    best_rank = rank;
  }
  if (best.empty()) return false;
  shard.left.erase(best);
  ++loads_[best].filling;
  ++loads_[best].copies;
  AddReplica(shard, {.server = servers_.at(best).ref, .in_sync = false, .placed = Next()});
  return true;
}

void ShardMap::AddReplica(ShardCopies& shard, const ReplicaCopy& copy) {
  shard.AddReplica(copy);
  changed_ = true;
}

}  // namespace capstan::scheduler
