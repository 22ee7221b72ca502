#include "server/core/consistency/worker_clocks.h"

#include <algorithm>
#include <utility>

namespace capstan::server {

void WorkerClocks::SetMembership(const Membership& membership) {
  std::map<Rank, Clock> members;
  for (const Member& member : membership.members) {
    Clock clock{.incarnation = member.incarnation,
                .active = member.active,
                .start_iteration = member.start_iteration};
    bool becomes_active = member.active;
    const auto before = members_.find(member.rank);
    if (before != members_.end() && before->second.incarnation == member.incarnation) {
      clock.finished = before->second.finished;
      // A different start means that the worker rested and came back in memberships that this
      // server has not seen.
      if (before->second.active && before->second.start_iteration == member.start_iteration) {
        becomes_active = false;
      }
    }
    const auto early = early_.find(member.rank);
    if (early != early_.end() && early->second.incarnation <= member.incarnation) {
      if (early->second.incarnation == member.incarnation) {
        clock.finished = std::max(clock.finished, early->second.finished);
      }
      early_.erase(early);
    }
    if (becomes_active) clock.finished = std::max(clock.finished, member.start_iteration);
    members.insert({member.rank, clock});
  }
  members_ = std::move(members);
  members_known_ = !members_.empty() || members_known_;
}

void WorkerClocks::RecordPush(Rank rank, Incarnation incarnation, Iteration iteration) {
  const auto member = members_.find(rank);
  if (member != members_.end() && incarnation <= member->second.incarnation) {
    Clock& clock = member->second;
    if (incarnation == clock.incarnation)
      clock.finished = std::max(clock.finished, iteration.Next());
    return;
  }
  Clock& clock = early_[rank];
  if (incarnation > clock.incarnation) clock = Clock{.incarnation = incarnation};
  if (incarnation == clock.incarnation) clock.finished = std::max(clock.finished, iteration.Next());
}

std::optional<Iteration> WorkerClocks::FinishedByAll() const {
  std::optional<Iteration> finished;
  for (const auto& [rank, clock] : members_) {
    if (clock.active) finished = std::min(finished.value_or(clock.finished), clock.finished);
  }
  return finished;
}

void WorkerClocks::Save(ShardCoreState& state) const {
  const auto save = [](const std::map<Rank, Clock>& clocks) {
    std::vector<WorkerClock> saved;
    for (const auto& [rank, clock] : clocks) {
      saved.push_back({.rank = rank,
                       .incarnation = clock.incarnation,
                       .finished = clock.finished,
                       .active = clock.active,
                       .start_iteration = clock.start_iteration});
    }
    return saved;
  };
  state.members_known = members_known_;
  state.members = save(members_);
  state.early = save(early_);
}

void WorkerClocks::Restore(const ShardCoreState& state) {
  const auto restore = [](const std::vector<WorkerClock>& saved) {
    std::map<Rank, Clock> clocks;
    for (const WorkerClock& clock : saved) {
      clocks[clock.rank] = {.incarnation = clock.incarnation,
                            .finished = clock.finished,
                            .active = clock.active,
                            .start_iteration = clock.start_iteration};
    }
    return clocks;
  };
  members_known_ = state.members_known;
  members_ = restore(state.members);
  early_ = restore(state.early);
}

std::vector<Rank> WorkerClocks::Behind(Iteration count) const {
  std::vector<Rank> ranks;
  for (const auto& [rank, clock] : members_) {
    if (clock.active && clock.finished < count) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace capstan::server
