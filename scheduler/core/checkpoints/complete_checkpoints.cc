#include "scheduler/core/checkpoints/complete_checkpoints.h"

#include <algorithm>

#include "common/planted/planted_bug.h"

namespace capstan::scheduler {

CompleteCheckpoints::CompleteCheckpoints(const JobPlan& plan)
    : keep_(plan.checkpoints_kept),
      incremental_(plan.checkpoints_incremental &&
                   std::any_of(plan.tables.begin(), plan.tables.end(),
                               [](const TableSize& table) { return table.sparse; })),
      folder_(plan.checkpoint_folder),
      floor_(plan.checkpoint_floor) {}

// ---------------------------------------------------------------- the newest

void CompleteCheckpoints::Add(RestoreFrom newest, bool rests, int64_t bytes, int64_t added_bytes) {
  newest.rests_on = rests ? complete_.back().rests_on : newest.id;
  if (newest.rests_on == newest.id) {
    chain_ = {.length = 0, .first_bytes = bytes, .added_bytes = 0};
  }
  ++chain_.length;
  chain_.added_bytes += added_bytes;
  const std::vector<CheckpointId> staying = StayingWith(newest);
  complete_.push_back(std::move(newest));
  std::erase_if(complete_, [&staying](const RestoreFrom& one) {
    return std::find(staying.begin(), staying.end(), one.id) == staying.end();
  });
}

CheckpointId CompleteCheckpoints::NextBase() const {
  const bool full = chain_.length == 0 || chain_.length >= kChainMax ||
                    2 * chain_.added_bytes > chain_.first_bytes;
  return !incremental_ || full || complete_.empty() ? CheckpointId(0) : complete_.back().id;
}

// ---------------------------------------------------------------- which ones stay

std::vector<CheckpointId> CompleteCheckpoints::StayingWith(const RestoreFrom& newest) const {
  std::vector<CheckpointId> staying = {newest.id};
  int chains = 1;
  const bool forgets = Planted(PlantedBug::kForgetBases);
  // This checkpoint and all later ones stay.
  CheckpointId needed = forgets ? newest.id : newest.rests_on;
  for (auto it = complete_.rbegin(); it != complete_.rend(); ++it) {
    if (it->id < needed) {
      if (chains == keep_) break;
      ++chains;
      needed = forgets ? it->id : it->rests_on;
    }
    staying.push_back(it->id);
  }
  const RestoreFrom* const best = kept();
  if (best == nullptr) return staying;
  for (const RestoreFrom& one : complete_) {
    if (one.id < best->rests_on || one.id > best->id) continue;
    if (std::find(staying.begin(), staying.end(), one.id) == staying.end()) {
      staying.push_back(one.id);
    }
  }
  return staying;
}

void CompleteCheckpoints::KeepNewest() {
  kept_best_ = complete_.back().id;
  ++changes_;
}

const RestoreFrom* CompleteCheckpoints::kept() const {
  const auto best = std::find_if(complete_.begin(), complete_.end(),
                                 [this](const RestoreFrom& one) { return one.id == kept_best_; });
  return best == complete_.end() ? nullptr : &*best;
}

void CompleteCheckpoints::Forget(CheckpointId id) {
  if (id == kept_best_) kept_best_ = CheckpointId(0);
  std::erase_if(complete_, [id](const RestoreFrom& one) { return one.id == id; });
  EndChain();
}

CheckpointRemoval CompleteCheckpoints::Removal() const {
  CheckpointRemoval removal{.job_folder = folder_, .floor = floor_, .staying = {}};
  for (const RestoreFrom& one : complete_) removal.staying.push_back(one.id);
  return removal;
}

}  // namespace capstan::scheduler
