#include "worker/core/task_board.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "common/planted/planted_bug.h"

namespace capstan::worker {

TaskBoard::TaskBoard(const Options& options)
    : options_(options),
      training_(options.batch_size),
      evaluation_(options.evaluation_batch_size) {}

bool TaskBoard::Take(const Assignment& assignment) {
  if (assignment.generation <= assignment_.generation) return false;
  const bool same_phase =
      assignment.phase == assignment_.phase && assignment.epoch == assignment_.epoch;
  const bool same_export = assignment.export_path == assignment_.export_path;
  assignment_ = assignment;
  resting_ = false;
  if (!same_phase || !same_export) exported_ = false;
  slots_.Assign(assignment.slots);
  samples().Assign(assignment.samples);
  next_iteration_ = std::max(next_iteration_, assignment.start_iteration);
  iterations_done_ = std::max(iterations_done_, assignment.start_iteration);
  return true;
}

// The job alone determines which samples belong to slot m of iteration c: every task that computes
// the slot gets the same gradient, however often it does.
Work TaskBoard::FromSlot(const SlotWork& slot) const {
  const int64_t first = slot.iteration.value() - assignment_.epoch_first_iteration.value();
  const int64_t per_iteration = options_.slots * options_.batch_size;
  const int64_t iteration_begin = std::min(first * per_iteration, options_.train_samples);
  const int64_t iteration_end = std::min(iteration_begin + per_iteration, options_.train_samples);
  const int64_t per_update =
      (iteration_end - iteration_begin) * (options_.slots - options_.backups) / options_.slots;
  const int64_t begin =
      std::min(iteration_begin + slot.slot.value() * options_.batch_size, iteration_end);
  return Work{.kind = Work::Kind::kTrain,
              .epoch = assignment_.epoch,
              .iteration = slot.iteration,
              .slots = {slot.slot.value(), slot.slot.value() + 1},
              .positions = {begin, std::min(begin + options_.batch_size, iteration_end)},
              .gradient_samples = std::max<int64_t>(1, per_update)};
}

Work TaskBoard::FromSamples(const SampleWork& batch, Iteration iteration) const {
  const bool train = assignment_.phase == Phase::kTrain;
  return Work{.kind = train ? Work::Kind::kTrain : Work::Kind::kEvaluate,
              .epoch = assignment_.epoch,
              .iteration = train ? iteration : Iteration(0),
              .positions = batch.positions,
              .gradient_samples = train ? batch.positions.size() : 1,
              .lease = batch.lease};
}

Work TaskBoard::Next() const {
  switch (assignment_.phase) {
    case Phase::kIdle:
      return {};
    case Phase::kFinish:
      return {.kind = Work::Kind::kFinish};
    case Phase::kExport:
      if (exported_) return {};
      return {.kind = Work::Kind::kExport,
              .export_path = assignment_.export_path,
              .staged_path = assignment_.staged_path};
    case Phase::kTrain:
      if (assignment_.paused) return {};
      break;
    case Phase::kEvaluate:
      break;
  }
  const std::vector<Work> next = Upcoming(1);
  return next.empty() ? Work{} : next[0];
}

std::vector<Work> TaskBoard::Upcoming(int count) const {
  std::vector<Work> works;
  if (assignment_.phase != Phase::kTrain && assignment_.phase != Phase::kEvaluate) return works;
  if (TrainsSlots()) {
    for (const SlotWork& slot : slots_.Upcoming(count)) works.push_back(FromSlot(slot));
    return works;
  }
  Iteration iteration = next_iteration_;
  for (const SampleWork& batch : samples().Upcoming(count)) {
    works.push_back(FromSamples(batch, iteration));
    ++iteration;
  }
  return works;
}

bool TaskBoard::Start(const Work& work) {
  if (Next() != work && !Planted(PlantedBug::kBeginWhilePaused)) return false;
  if (work.kind == Work::Kind::kTrain) ++under_way_;
  if (work.kind == Work::Kind::kTrain && options_.bsp) {
    slots_.Started({work.iteration, SlotId(static_cast<int32_t>(work.slots.begin))});
    return true;
  }
  samples().Started({work.lease, work.positions});
  if (Planted(PlantedBug::kReportBeforeAcknowledged)) {
    samples().Done({work.lease, work.positions}, {});
  }
  if (work.kind == Work::Kind::kTrain) {
    next_iteration_ = std::max(next_iteration_, work.iteration.Next());
  }
  return true;
}

void TaskBoard::Done(const Work& work, const WorkResult& result) {
  if (work.kind == Work::Kind::kEvaluate) {
    evaluation_.Done({work.lease, work.positions}, result);
    return;
  }
  --under_way_;
  if (options_.bsp) {
    slots_.Done({work.iteration, SlotId(static_cast<int32_t>(work.slots.begin))});
  } else {
    training_.Done({work.lease, work.positions}, result);
    iterations_done_ = std::max(iterations_done_, work.iteration.Next());
  }
  totals_.samples += result.samples;
  totals_.loss += result.loss_sum;
  totals_.correct += result.correct;
}

void TaskBoard::GiveUp(const Work& work) {
  if (work.kind == Work::Kind::kTrain) --under_way_;
}

void TaskBoard::SkipTo(Iteration oldest) { slots_.SkipTo(oldest); }

void TaskBoard::SawRead(const RowsRead& read) {
  totals_.rows_cached += read.cached;
  totals_.rows_pulled += read.pulled;
  const auto entry =
      static_cast<size_t>(std::clamp<int64_t>(read.staleness, 0, kStalenessEntriesMax - 1));
  if (totals_.staleness_counts.size() <= entry) totals_.staleness_counts.resize(entry + 1);
  ++totals_.staleness_counts[entry];
}

bool TaskBoard::Idle() const {
  if (under_way_ > 0 && !resting_) return false;
  switch (assignment_.phase) {
    case Phase::kTrain:
      if (assignment_.paused) return true;
      return options_.bsp ? slots_.Finished() : training_.Finished();
    case Phase::kEvaluate:
      return evaluation_.Finished();
    case Phase::kExport:
      return exported_;
    case Phase::kIdle:
    case Phase::kFinish:
      break;
  }
  return true;
}

}  // namespace capstan::worker
