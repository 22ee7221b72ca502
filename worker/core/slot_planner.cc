#include "worker/core/slot_planner.h"

#include <algorithm>
#include <utility>

#include "common/planted/planted_bug.h"

namespace capstan::worker {

void SlotPlanner::Assign(const std::vector<SlotLease>& leases) {
  std::map<SlotId, Slot> slots;
  for (const SlotLease& lease : leases) {
    Slot slot{.next = lease.begin, .done = lease.begin, .end = lease.end};
    if (const auto held = slots_.find(lease.slot); held != slots_.end()) {
      slot.next = std::max(held->second.next, lease.begin);
      slot.done = std::max(held->second.done, lease.begin);
    }
    slots[lease.slot] = slot;
  }
  slots_ = std::move(slots);
}

std::optional<SlotWork> SlotPlanner::Next() const {
  std::optional<SlotWork> best;
  for (const auto& [id, slot] : slots_) {
    if (slot.next >= slot.end) continue;
    if (!best.has_value() || slot.next < best->iteration) best = SlotWork{slot.next, id};
  }
  return best;
}

std::vector<SlotWork> SlotPlanner::Upcoming(int count) const {
  SlotPlanner copy = *this;
  std::vector<SlotWork> works;
  while (static_cast<int>(works.size()) < count) {
    const std::optional<SlotWork> work = copy.Next();
    if (!work.has_value()) break;
    works.push_back(*work);
    copy.Started(*work);
  }
  return works;
}

void SlotPlanner::Started(const SlotWork& work) {
  const auto slot = slots_.find(work.slot);
  if (slot == slots_.end()) return;
  slot->second.next = std::max(slot->second.next, work.iteration.Next());
}

void SlotPlanner::Done(const SlotWork& work) {
  const auto found = slots_.find(work.slot);
  if (found == slots_.end()) return;
  Slot& slot = found->second;
  slot.done = std::max(slot.done, work.iteration.Next());
  slot.next = std::max(slot.next, slot.done);
}

void SlotPlanner::SkipTo(Iteration oldest) {
  if (Planted(PlantedBug::kSkipOneIterationTooMany)) ++oldest;
  for (auto& [id, slot] : slots_) {
    slot.done = std::max(slot.done, oldest);
    slot.next = std::max(slot.next, slot.done);
  }
}

bool SlotPlanner::Finished() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const auto& entry) {
    const Slot& slot = entry.second;
    return slot.done >= slot.end && slot.done == slot.next;
  });
}

std::vector<SlotProgress> SlotPlanner::Progress() const {
  std::vector<SlotProgress> progress;
  for (const auto& [id, slot] : slots_) progress.push_back({.slot = id, .done = slot.done});
  return progress;
}

}  // namespace capstan::worker
