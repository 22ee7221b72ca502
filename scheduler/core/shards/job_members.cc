#include "scheduler/core/shards/job_members.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"

namespace capstan::scheduler {

JobMembers::JobMembers(const Primaries& primaries, Instant now, Generation first)
    : changed_(now), primaries_(primaries) {
  membership_.generation = first;
}

void JobMembers::SetPrimaries(const Primaries& primaries, Instant now) {
  if (primaries == primaries_) return;
  primaries_ = primaries;
  changed_ = now;
  NoteReady();
}

void JobMembers::Forget(const NodeId& server) {
  applied_.erase(server);
  making_.Forget(server);
}

absl::Status JobMembers::Check() const {
  absl::Status status = CheckCount("membership", membership_.generation.value());
  const double factor = membership_.learning_rate_factor;
  if (!(factor > 0 && factor <= 1)) {
    status.Update(absl::DataLossError(
        absl::StrCat("learning_rate_factor: ", factor, ", expected a number in (0, 1]")));
  }
  status.Update(CheckCount("clock_seconds", membership_.clock_seconds));
  int32_t before = -1;
  for (const Member& member : membership_.members) {
    const int32_t rank = member.rank.value();
    if (rank <= before || !since_.contains(member.rank)) {
      status.Update(absl::DataLossError(
          absl::StrCat("member of rank ", rank, ", expected a listed rank above ", before)));
    }
    before = rank;
    status.Update(CheckCount("incarnation of a member", member.incarnation.value()));
    status.Update(CheckCount("start_iteration of a member", member.start_iteration.value()));
  }
  status.Update(CheckCount("incarnation_floor", membership_.incarnation_floor.value()));
  return status;
}

Member* JobMembers::FindToChange(Rank rank) { return const_cast<Member*>(Find(rank)); }

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
  if (Member* earlier = FindToChange(rank)) {
    left_out_ = membership_.generation;
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
  left_out_ = membership_.generation;
}

void JobMembers::Fence(Incarnation floor, Instant now) {
  floor = std::max(floor, first_incarnation_);
  if (floor <= membership_.incarnation_floor) return;
  membership_.incarnation_floor = floor;
  Changed(now);
  left_out_ = membership_.generation;
}

void JobMembers::Restored(Instant now, Generation first) {
  changed_ = now;
  membership_.generation = std::max(membership_.generation, first);
  left_out_ = membership_.generation;
  first_incarnation_ = std::max(first_incarnation_, Incarnation(first.value()));
}

void JobMembers::Adopt(Instant now) {
  applied_.clear();
  making_.Clear();
  membership_.generation = Generation(membership_.generation.value() + kGenerationsPerAdoption);
  Changed(now);
}

void JobMembers::Activate(Rank rank, Iteration start_iteration, Instant now) {
  Member* member = FindToChange(rank);
  member->active = true;
  member->start_iteration = start_iteration;
  Changed(now);
  since_[rank] = membership_.generation;
  NoteReady();
}

void JobMembers::Deactivate(Rank rank, Instant now) {
  Member* member = FindToChange(rank);
  if (member == nullptr || !member->active) return;
  member->active = false;
  Changed(now);
  since_[rank] = membership_.generation;
}

void JobMembers::SetLearningRateFactor(double factor, Instant now) {
  if (membership_.learning_rate_factor == factor) return;
  membership_.learning_rate_factor = factor;
  Changed(now);
  factor_since_ = membership_.generation;
  NoteReady();
}

void JobMembers::SetClock(int64_t seconds, Instant now) {
  if (membership_.clock_seconds == seconds) return;
  membership_.clock_seconds = seconds;
  Changed(now);
}

bool JobMembers::MayActivate(Rank rank) const {
  const Member* member = Find(rank);
  return member != nullptr && !member->active && since_.at(rank) <= AppliedByAll();
}

bool JobMembers::IsReady(Rank rank) const {
  const Member* const member = Find(rank);
  if (member == nullptr || !member->active) return false;
  return since_.at(rank) == Generation(0) || Planted(PlantedBug::kGrantBeforeServersKnow);
}

// The membership of a newer routing table replaces the one of an older table, even if it is lower,
// because the server may have dropped the job's tables in between.
void JobMembers::Acknowledge(const NodeId& server, Generation routing, Generation membership) {
  Applied& applied = applied_[server];
  membership = std::min(membership, membership_.generation);
  if (routing > applied.routing) {
    applied = {routing, membership};
  } else if (routing == applied.routing) {
    applied.membership = std::max(applied.membership, membership);
  }
  NoteReady();
}

void JobMembers::NoteReady() {
  const Generation applied = AppliedByAll();
  if (factor_since_ <= applied) factor_since_ = Generation(0);
  for (const Member& member : membership_.members) {
    Generation& since = since_.at(member.rank);
    if (member.active && since <= applied) since = Generation(0);
  }
}

Generation JobMembers::AppliedBy(const NodeId& server) const {
  const auto it = applied_.find(server);
  if (it == applied_.end() || it->second.routing < primaries_.at(server)) return Generation(0);
  return it->second.membership;
}

bool JobMembers::tables_ready() const {
  return std::all_of(primaries_.begin(), primaries_.end(), [this](const auto& entry) {
    const auto it = applied_.find(entry.first);
    return it != applied_.end() && it->second.routing >= entry.second;
  });
}

std::optional<NodeId> JobMembers::Behind() const {
  for (const auto& [server, since] : primaries_) {
    if (IsBehind(server)) return server;
  }
  return std::nullopt;
}

Instant JobMembers::StandsSince(const NodeId& server) const {
  return making_.StandsSince(server, changed_);
}

std::optional<JobMembers::LateServer> JobMembers::Latest() const {
  std::optional<LateServer> latest;
  for (const auto& [server, table] : primaries_) {
    const Instant since = StandsSince(server);
    if (IsBehind(server) && (!latest || since < latest->since)) latest = {server, since};
  }
  return latest;
}

Generation JobMembers::AppliedByAll() const {
  Generation least = membership_.generation;
  for (const auto& [server, since] : primaries_) least = std::min(least, AppliedBy(server));
  return least;
}

}  // namespace capstan::scheduler
