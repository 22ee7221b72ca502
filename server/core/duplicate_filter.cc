#include "server/core/duplicate_filter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"

namespace capstan::server {

absl::Status DuplicateFilter::CheckIncarnation(Rank rank, Incarnation incarnation) const {
  if (Planted(PlantedBug::kAcceptOldIncarnation)) return absl::OkStatus();
  const auto it = windows_.find(rank);
  const Incarnation lowest =
      it == windows_.end() ? floor_ : std::max(floor_, it->second.incarnation);
  if (incarnation >= lowest) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("incarnation ", incarnation.value(), " of rank ",
                                         rank.value(), " is fenced off: expected ", lowest.value(),
                                         " or higher"));
}

bool DuplicateFilter::Lists(Rank rank, Incarnation incarnation) const {
  const auto it = windows_.find(rank);
  return it != windows_.end() && it->second.listed && it->second.incarnation == incarnation;
}

void DuplicateFilter::Admit(Rank rank, Incarnation incarnation) {
  const auto [it, inserted] = windows_.try_emplace(rank, Fresh(incarnation));
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
  const auto it = windows_.find(push.rank);
  const bool known = it != windows_.end() && it->second.incarnation == push.incarnation;
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
  Window& window = windows_.find(rank)->second;
  if (window.incarnation != incarnation) return;
  if (Planted(PlantedBug::kSkipDuplicateFilter)) return;
  if (sequence >= window.low_water) window.applied.insert(sequence);
  RaiseLowWater(window, low_water);
}

void DuplicateFilter::SetMembership(const Membership& membership) {
  floor_ = std::max(floor_, membership.incarnation_floor);
  std::erase_if(windows_,
                [this](const auto& window) { return window.second.incarnation < floor_; });
  auto member = membership.members.begin();
  for (auto& [rank, window] : windows_) {
    while (member != membership.members.end() && member->rank < rank) ++member;
    const bool is_member = member != membership.members.end() && member->rank == rank;
    if (is_member || !window.listed) continue;
    window = Fresh(window.incarnation.Next());
  }
  for (const Member& each : membership.members) {
    const auto [it, inserted] = windows_.try_emplace(each.rank, Fresh(each.incarnation));
    if (it->second.incarnation < each.incarnation) it->second = Fresh(each.incarnation);
    if (it->second.incarnation == each.incarnation) it->second.listed = true;
  }
}

std::vector<PushMarks> DuplicateFilter::Save() const {
  std::vector<PushMarks> saved;
  for (const auto& [rank, window] : windows_) {
    saved.push_back({.rank = rank,
                     .incarnation = window.incarnation,
                     .listed = window.listed,
                     .low_water = window.low_water,
                     .applied = {window.applied.begin(), window.applied.end()}});
  }
  return saved;
}

void DuplicateFilter::Restore(Incarnation floor, const std::vector<PushMarks>& all) {
  floor_ = floor;
  windows_.clear();
  for (const PushMarks& saved : all) {
    if (!saved.listed && Planted(PlantedBug::kForgetFences)) continue;
    Window window = Fresh(saved.incarnation);
    window.listed = saved.listed;
    window.low_water = saved.low_water;
    window.applied.insert(saved.applied.begin(), saved.applied.end());
    windows_[saved.rank] = std::move(window);
  }
}

int64_t DuplicateFilter::marks() const {
  int64_t marks = 0;
  for (const auto& [rank, window] : windows_) marks += static_cast<int64_t>(window.applied.size());
  return marks;
}

void DuplicateFilter::RaiseLowWater(Window& window, Sequence low_water) {
  if (low_water > window.low_water) {
    window.low_water = low_water;
    window.applied.erase(window.applied.begin(), window.applied.lower_bound(low_water));
  }
  while (!window.applied.empty() && *window.applied.begin() == window.low_water) {
    window.applied.erase(window.applied.begin());
    ++window.low_water;
  }
}

DuplicateFilter::Window DuplicateFilter::Fresh(Incarnation incarnation) {
  Window window;
  window.incarnation = incarnation;
  return window;
}

}  // namespace capstan::server
