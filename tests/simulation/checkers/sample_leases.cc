#include "tests/simulation/checkers/sample_leases.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace capstan::sim {
void SampleLeases::Assigned(const TaskKey& task_key, const scheduler::Assignment& assignment) {
  if (assignment.phase != scheduler::TaskPhase::kTrain || job_.mode == ConsistencyMode::kBsp)
    return;
  if (assignment.epoch != known_.epoch) {
    if (assignment.epoch < known_.epoch) {
      return Fail(absl::StrCat("leases: epoch ", assignment.epoch.value(), " again after epoch ",
                               known_.epoch.value()));
    }
    known_.epoch = assignment.epoch;
    known_.positions.assign(static_cast<size_t>(job_.train_count), {});
    known_.leases.clear();
    known_.reported.clear();
  }
  for (const scheduler::SampleLease& lease : assignment.samples) {
    if (!known_.leases.insert({lease.id, lease}).second) continue;  // Known: it is sent again.
    for (int64_t p = lease.positions.begin; p < lease.positions.end; ++p) {
      Position& position = known_.positions[static_cast<size_t>(p)];
      if (position.holder.has_value() && !position.forgotten) {
        ++*leased_again_;
        if (!dead_.contains(*position.holder)) {
          Fail(absl::StrCat("leases: position ", p, " of epoch ", known_.epoch.value(),
                            " was leased to ", NameOf(task_key), " while ",
                            NameOf(*position.holder), ", alive, holds it"));
        }
        if (known_.reported.contains(p)) {
          Fail(absl::StrCat("leases: position ", p, " of epoch ", known_.epoch.value(),
                            " was leased again after it was reported as done"));
        }
      }
      position = {.holder = task_key, .lease = lease.id, .trained = false};
    }
  }
}

void SampleLeases::BatchDone(const TaskKey& task_key, const Batch& batch) {
  if (batch.epoch != known_.epoch || job_.mode == ConsistencyMode::kBsp || history_.IsOld(task_key))
    return;
  for (int64_t p = batch.positions.begin; p < batch.positions.end; ++p) {
    Position& position = known_.positions[static_cast<size_t>(p)];
    if (position.holder != task_key) continue;
    if (position.trained) {
      Fail(absl::StrCat("leases: ", NameOf(task_key), " trained position ", p, " of epoch ",
                        known_.epoch.value(), " twice"));
    }
    position.trained = true;
  }
}

void SampleLeases::ReportTaken(const scheduler::TaskReport& report) {
  if (job_.mode == ConsistencyMode::kBsp) return;
  for (const scheduler::SampleReport& sample : report.samples) {
    const auto lease = known_.leases.find(sample.lease);
    if (lease == known_.leases.end())
      continue;  // A lease of an evaluation, or of an epoch that is over.
    for (int64_t p = lease->second.positions.begin; p < sample.position_done; ++p) {
      const Position& position = known_.positions[static_cast<size_t>(p)];
      if (position.lease != sample.lease) continue;
      known_.reported.insert(p);
      if (!position.trained) {
        Fail(absl::StrCat("leases: ", NameOf(report.task), " reported position ", p, " of epoch ",
                          known_.epoch.value(), " before its push was acknowledged"));
      }
    }
  }
}

void SampleLeases::Happened(const scheduler::Event& event) {
  history_.Happened(event, known_);
  if (const auto* died = std::get_if<scheduler::TaskDied>(&event)) dead_.insert(died->task);
  if (std::holds_alternative<scheduler::EpochDone>(event)) CloseEpoch();
}

// A sample that was leased before the copy and trained since then counts as trained. A sample that
// was leased after the copy may count, too: its holder tells the next scheduler, unless it is gone
// (seed 1718285011).
void SampleLeases::StorePutBack() {
  const Known before = std::exchange(known_, copied_);
  if (before.epoch != known_.epoch) return;
  for (size_t p = 0; p < known_.positions.size(); ++p) {
    const Position& later = before.positions[p];
    Position& position = known_.positions[p];
    const bool same = later.holder == position.holder && later.lease == position.lease;
    if (!same && !later.holder.has_value()) continue;
    position = later;
    position.forgotten = !same;
  }
}

void SampleLeases::CloseEpoch() {
  if (job_.mode == ConsistencyMode::kBsp) return;
  for (size_t p = 0; p < known_.positions.size(); ++p) {
    if (known_.positions[p].trained) continue;
    return Fail(
        absl::StrCat("leases: epoch ", known_.epoch.value(), " ended though position ", p,
                     known_.positions[p].holder.has_value()
                         ? absl::StrCat(" was not trained by ", NameOf(*known_.positions[p].holder),
                                        ", which held it last")
                         : " was never leased"));
  }
}

}  // namespace capstan::sim
