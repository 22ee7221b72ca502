#include "server/core/duplicate_filter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"

namespace capstan::server {

absl::Status DuplicateFilter::CheckIncarnation(Rank rank, Incarnation incarnation) const {
  if (Planted(PlantedBug::kAcceptOldIncarnation)) return absl::OkStatus();
  const auto it = lives_.find(rank);
  const Incarnation lowest = it == lives_.end() ? floor_ : std::max(floor_, it->second.incarnation);
  if (incarnation >= lowest) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("incarnation ", incarnation.value(), " of rank ",
                                         rank.value(), " is fenced off: expected ", lowest.value(),
                                         " or higher"));
}

bool DuplicateFilter::Lists(Rank rank, Incarnation incarnation) const {
  const auto it = lives_.find(rank);
  return it != lives_.end() && it->second.listed && it->second.incarnation == incarnation;
}

void DuplicateFilter::Admit(Rank rank, Incarnation incarnation) {
  const auto [it, inserted] = lives_.try_emplace(rank, Fresh(incarnation));
  if (!inserted && it->second.incarnation < incarnation) it->second = Fresh(incarnation);
}

absl::StatusOr<PushOutcome> DuplicateFilter::Check(const PushHead& push) const {
  CAPSTAN_RETURN_IF_ERROR(CheckIncarnation(push.rank, push.incarnation));
  if (push.sequence < Sequence(1) || push.sequence > kSequenceMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequence ", push.sequence.value(), ": expected 1 to ", kSequenceMax.value()));
  }
  if (push.sequence_low_water > push.sequence) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequence_low_water ", push.sequence_low_water.value(),
                     ": expected at most the push's own sequence ", push.sequence.value()));
  }
  const auto it = lives_.find(push.rank);
  const bool known = it != lives_.end() && it->second.incarnation == push.incarnation;
  Sequence low_water = std::max(push.sequence_low_water, Sequence(1));
  if (known && !Planted(PlantedBug::kSkipDuplicateFilter)) {
    if (push.sequence < it->second.low_water) return PushOutcome::kDuplicate;
    if (it->second.applied.contains(push.sequence)) return PushOutcome::kDuplicate;
    low_water = std::max(low_water, it->second.low_water);
  }
  const uint64_t ahead = push.sequence.value() - low_water.value();
  if (ahead >= kSequenceWindow) {
    return absl::ResourceExhaustedError(
        absl::StrCat("sequence ", push.sequence.value(), " of rank ", push.rank.value(), " is ",
                     ahead, " beyond the low-water mark ", low_water.value(),
                     ": expected less than ", kSequenceWindow, "; wait for answers first"));
  }
  return PushOutcome::kRecorded;
}

void DuplicateFilter::Record(Rank rank, Incarnation incarnation, Sequence sequence,
                             Sequence low_water) {
  if (incarnation < floor_) return;
  Admit(rank, incarnation);
  Life& life = lives_.find(rank)->second;
  if (life.incarnation != incarnation) return;
  if (Planted(PlantedBug::kSkipDuplicateFilter)) return;
  if (sequence >= life.low_water) life.applied.insert(sequence);
  RaiseLowWater(life, low_water);
}

void DuplicateFilter::SetMembership(const Membership& membership) {
  floor_ = std::max(floor_, membership.incarnation_floor);
  absl::erase_if(lives_, [this](const auto& life) { return life.second.incarnation < floor_; });
  auto member = membership.members.begin();
  for (auto& [rank, life] : lives_) {
    while (member != membership.members.end() && member->rank < rank) ++member;
    const bool is_member = member != membership.members.end() && member->rank == rank;
    if (is_member || !life.listed) continue;
    life = Fresh(life.incarnation.Next());
  }
  for (const Member& each : membership.members) {
    const auto [it, inserted] = lives_.try_emplace(each.rank, Fresh(each.incarnation));
    if (it->second.incarnation < each.incarnation) it->second = Fresh(each.incarnation);
    if (it->second.incarnation == each.incarnation) it->second.listed = true;
  }
}

std::vector<LifeMarks> DuplicateFilter::Save() const {
  std::vector<LifeMarks> saved;
  for (const auto& [rank, life] : lives_) {
    saved.push_back({.rank = rank,
                     .incarnation = life.incarnation,
                     .listed = life.listed,
                     .low_water = life.low_water,
                     .applied = {life.applied.begin(), life.applied.end()}});
  }
  return saved;
}

void DuplicateFilter::Restore(Incarnation floor, const std::vector<LifeMarks>& lives) {
  floor_ = floor;
  lives_.clear();
  for (const LifeMarks& saved : lives) {
    if (!saved.listed && Planted(PlantedBug::kForgetFences)) continue;
    Life life = Fresh(saved.incarnation);
    life.listed = saved.listed;
    life.low_water = saved.low_water;
    life.applied.insert(saved.applied.begin(), saved.applied.end());
    lives_[saved.rank] = std::move(life);
  }
}

int64_t DuplicateFilter::marks() const {
  int64_t marks = 0;
  for (const auto& [rank, life] : lives_) marks += static_cast<int64_t>(life.applied.size());
  return marks;
}

void DuplicateFilter::RaiseLowWater(Life& life, Sequence low_water) {
  if (low_water > life.low_water) {
    life.low_water = low_water;
    life.applied.erase(life.applied.begin(), life.applied.lower_bound(low_water));
  }
  while (!life.applied.empty() && *life.applied.begin() == life.low_water) {
    life.applied.erase(life.applied.begin());
    ++life.low_water;
  }
}

DuplicateFilter::Life DuplicateFilter::Fresh(Incarnation incarnation) {
  Life life;
  life.incarnation = incarnation;
  return life;
}

}  // namespace capstan::server
