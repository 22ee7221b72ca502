#include "scheduler/core/job_members.h"

#include <algorithm>

#include "common/planted/planted_bug.h"

namespace capstan::scheduler {

JobMembers::JobMembers(const std::vector<ServerRef>& servers, Instant now) : changed_(now) {
  membership_.generation = Generation(1);
  for (const ServerRef& server : servers) applied_[server.node];
}

Member* JobMembers::Find(Rank rank) {
  for (Member& member : membership_.members) {
    if (member.rank == rank) return &member;
  }
  return nullptr;
}

const Member* JobMembers::Find(Rank rank) const {
  for (const Member& member : membership_.members) {
    if (member.rank == rank) return &member;
  }
  return nullptr;
}

void JobMembers::Changed(Instant now) {
  ++membership_.generation;
  changed_ = now;
}

void JobMembers::Add(Rank rank, Incarnation incarnation, Instant now) {
  Changed(now);
  since_[rank] = membership_.generation;
  const Member fresh{.rank = rank, .incarnation = incarnation};
  if (Member* earlier = Find(rank)) {
    if (!Planted(PlantedBug::kKeepDeadMember)) *earlier = fresh;
    return;
  }
  auto& members = membership_.members;
  const auto after = std::find_if(members.begin(), members.end(),
                                  [rank](const Member& member) { return member.rank > rank; });
  members.insert(after, fresh);
}

void JobMembers::Remove(Rank rank, Instant now) {
  if (Planted(PlantedBug::kKeepDeadMember)) return;
  if (since_.erase(rank) == 0) return;
  std::erase_if(membership_.members, [rank](const Member& member) { return member.rank == rank; });
  Changed(now);
}

void JobMembers::Activate(Rank rank, Iteration start_iteration, Instant now) {
  Member* member = Find(rank);
  member->active = true;
  member->start_iteration = start_iteration;
  Changed(now);
  since_[rank] = membership_.generation;
}

void JobMembers::Deactivate(Rank rank, Instant now) {
  Member* member = Find(rank);
  if (member == nullptr || !member->active) return;
  member->active = false;
  Changed(now);
  since_[rank] = membership_.generation;
}

bool JobMembers::IsActive(Rank rank) const {
  const Member* member = Find(rank);
  return member != nullptr && member->active;
}

bool JobMembers::MayActivate(Rank rank) const {
  const Member* member = Find(rank);
  return member != nullptr && !member->active && since_.at(rank) <= AppliedByAll();
}

bool JobMembers::IsReady(Rank rank) const {
  if (Planted(PlantedBug::kGrantBeforeServersKnow)) return IsActive(rank);
  return IsActive(rank) && since_.at(rank) <= AppliedByAll();
}

void JobMembers::Acknowledge(const NodeId& server, Generation routing, Generation membership) {
  const auto it = applied_.find(server);
  if (it == applied_.end()) return;
  it->second.routing = std::max(it->second.routing, routing);
  it->second.membership =
      std::max(it->second.membership, std::min(membership, membership_.generation));
}

Iteration JobMembers::StartIteration(Rank rank) const {
  const Member* member = Find(rank);
  return member == nullptr ? Iteration(0) : member->start_iteration;
}

bool JobMembers::tables_ready() const {
  return std::all_of(applied_.begin(), applied_.end(),
                     [](const auto& entry) { return entry.second.routing >= Generation(1); });
}

std::optional<NodeId> JobMembers::Behind() const {
  for (const auto& [server, applied] : applied_) {
    if (applied.routing < Generation(1) || applied.membership < membership_.generation)
      return server;
  }
  return std::nullopt;
}

Generation JobMembers::AppliedByAll() const {
  Generation least = membership_.generation;
  for (const auto& [server, applied] : applied_) least = std::min(least, applied.membership);
  return least;
}

}  // namespace capstan::scheduler
