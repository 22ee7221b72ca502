#include "scheduler/core/work/slot_leases.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/types/job_limits.h"

namespace capstan::scheduler {

SlotLeases::SlotLeases(int slots, Iteration begin, Iteration end, Iteration done, int backups)
    : begin_(begin),
      end_(end),
      segment_end_(end),
      backups_(backups),
      incomplete_(done < end ? slots : 0),
      done_(static_cast<size_t>(slots), done),
      holders_(static_cast<size_t>(slots)) {}

absl::Status SlotLeases::Check() const {
  const auto slots = static_cast<int64_t>(done_.size());
  absl::Status status = CheckRange("slots", slots, 1, kSlotsMax);
  status.Update(
      CheckRange("slots with a holder", static_cast<int64_t>(holders_.size()), slots, slots));
  status.Update(CheckCount("backups", backups_, slots - 1));
  status.Update(CheckCount("begin", begin_.value()));
  status.Update(CheckRange("end", end_.value(), begin_.value(), kCounterMax));
  status.Update(
      CheckRange("end of the segment", segment_end_.value(), begin_.value(), end_.value()));
  int64_t incomplete = 0;
  for (const Iteration done : done_) {
    status.Update(CheckRange("done", done.value(), begin_.value(), end_.value()));
    if (done != end_) ++incomplete;
  }
  status.Update(CheckRange("incomplete slots", int64_t{incomplete_}, incomplete, incomplete));
  return status;
}

void SlotLeases::Assign(absl::Span<const Rank> live) {
  if (std::equal(live.begin(), live.end(), live_.begin(), live_.end())) return;
  live_.assign(live.begin(), live.end());
  size_t index = 0;
  for (size_t slot = 0; slot < holders_.size(); ++slot) {
    Holder& holder = holders_[slot];
    if (done_[slot] == end_ || live.empty()) {
      holder.held = false;
      continue;
    }
    const Rank rank = live[index * live.size() / static_cast<size_t>(incomplete_)];
    ++index;
    if (holder.held && holder.rank == rank) continue;
    holder = {.held = true, .rank = rank, .lease_begin = done_[slot]};
  }
}

absl::Status SlotLeases::Validate(SlotId slot, Iteration done) const {
  if (slot.value() < 0 || slot.value() >= static_cast<int64_t>(done_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", slot.value(), " is outside [0, ", done_.size(), ")"));
  }
  if (done > end_) {
    return absl::InvalidArgumentError(absl::StrCat("slot ", slot.value(), ": iteration_done ",
                                                   done.value(), " is above the end of the lease, ",
                                                   end_.value()));
  }
  return absl::OkStatus();
}

absl::Status SlotLeases::Report(SlotId slot, Iteration done) {
  if (absl::Status status = Validate(slot, done); !status.ok()) return status;
  Iteration& known = done_[static_cast<size_t>(slot.value())];
  if (done <= known) return absl::OkStatus();
  known = done;
  if (known == end_) --incomplete_;
  return absl::OkStatus();
}

std::vector<SlotLease> SlotLeases::HeldBy(Rank rank) const {
  std::vector<SlotLease> leases;
  for (size_t slot = 0; slot < holders_.size(); ++slot) {
    const Holder& holder = holders_[slot];
    if (!holder.held || holder.rank != rank) continue;
    leases.push_back({SlotId(static_cast<int32_t>(slot)), holder.lease_begin, segment_end_});
  }
  return leases;
}

bool SlotLeases::AtSegmentEnd() const {
  return std::all_of(done_.begin(), done_.end(),
                     [this](Iteration done) { return done == segment_end_; });
}

Iteration SlotLeases::furthest() const { return *std::max_element(done_.begin(), done_.end()); }

Iteration SlotLeases::finished() const {
  if (done_.empty()) return end_;
  std::vector<Iteration> done = done_;
  const auto slowest_needed = done.begin() + backups_;
  std::nth_element(done.begin(), slowest_needed, done.end());
  return *slowest_needed;
}

}  // namespace capstan::scheduler
