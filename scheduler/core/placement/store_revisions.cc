#include "scheduler/core/placement/store_revisions.h"

#include <algorithm>

#include "common/planted/planted_bug.h"

namespace capstan::scheduler {

bool StoreRevisions::IsTold() const {
  return !latest_.empty() && latest_.back().scheduler == current_.scheduler;
}

void StoreRevisions::Begin() {
  if (IsTold()) current_ = latest_.back();
}

void StoreRevisions::Advance() {
  ++current_.count;
  if (IsTold()) latest_.back() = current_;
}

bool StoreRevisions::Tell() {
  if (IsTold()) return false;
  if (latest_.size() == kSchedulersMax) latest_.erase(latest_.begin());
  latest_.push_back(current_);
  return true;
}

bool StoreRevisions::Has(const StoreRevision& seen) const {
  // A scheduler that has written nothing is not in the store.
  if (seen.scheduler == 0 || seen.count == 0) return true;
  if (Planted(PlantedBug::kBelieveOlderStore)) return true;
  return std::any_of(latest_.begin(), latest_.end(), [&seen](const StoreRevision& latest) {
    return latest.scheduler == seen.scheduler && latest.count >= seen.count;
  });
}

}  // namespace capstan::scheduler
