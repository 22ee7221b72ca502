#include "worker/core/sample_planner.h"

#include <algorithm>
#include <utility>

#include "common/planted/planted_bug.h"

namespace capstan::worker {

SamplePlanner::Lease* SamplePlanner::Find(LeaseId id) {
  const auto found = std::find_if(leases_.begin(), leases_.end(),
                                  [id](const Lease& lease) { return lease.lease.lease == id; });
  return found == leases_.end() ? nullptr : &*found;
}

void SamplePlanner::Assign(const std::vector<SampleLease>& leases) {
  std::vector<Lease> assigned;
  for (const SampleLease& lease : leases) {
    const Lease* held = Find(lease.lease);
    if (held != nullptr && !Planted(PlantedBug::kForgetLeaseProgress)) {
      assigned.push_back(*held);
      continue;
    }
    assigned.push_back(
        {.lease = lease,
         .next = lease.positions.begin,
         .progress = {.lease = lease.lease, .position_done = lease.positions.begin}});
  }
  leases_ = std::move(assigned);
}

std::optional<SampleWork> SamplePlanner::Next() const {
  const std::vector<SampleWork> next = Upcoming(1);
  return next.empty() ? std::nullopt : std::optional(next[0]);
}

std::vector<SampleWork> SamplePlanner::Upcoming(int count) const {
  std::vector<SampleWork> works;
  for (const Lease& lease : leases_) {
    const int64_t end = lease.lease.positions.end;
    for (int64_t begin = lease.next; begin < end; begin += batch_size_) {
      if (static_cast<int>(works.size()) == count) return works;
      works.push_back({lease.lease.lease, {begin, std::min(begin + batch_size_, end)}});
    }
  }
  return works;
}

void SamplePlanner::Started(const SampleWork& work) {
  if (Lease* lease = Find(work.lease); lease != nullptr) {
    lease->next = std::max(lease->next, work.positions.end);
  }
}

void SamplePlanner::Done(const SampleWork& work, const WorkResult& result) {
  Lease* lease = Find(work.lease);
  if (lease == nullptr || lease->progress.position_done >= work.positions.end) return;
  lease->progress.position_done = work.positions.end;
  lease->progress.loss_sum += result.loss_sum;
  lease->progress.correct += result.correct;
  lease->progress.outputs += result.outputs;
  lease->scores.Merge(result.scores);
  lease->next = std::max(lease->next, work.positions.end);
}

bool SamplePlanner::Finished() const { return UnfinishedLeases() == 0; }

int SamplePlanner::UnfinishedLeases() const {
  return static_cast<int>(std::count_if(leases_.begin(), leases_.end(),
                                        [](const Lease& lease) { return !lease.done(); }));
}

std::vector<SampleProgress> SamplePlanner::Progress() const {
  std::vector<SampleProgress> progress;
  for (const Lease& lease : leases_) {
    progress.push_back(lease.progress);
    if (lease.done()) progress.back().scores = lease.scores;
  }
  return progress;
}

}  // namespace capstan::worker
