#include "scheduler/core/plan/job_plan.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/types/job_limits.h"

namespace capstan::scheduler {
namespace {

constexpr int kIntMax = std::numeric_limits<int>::max();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

absl::Status CheckConsistency(const ConsistencyRule& rule) {
  absl::Status status;
  if (rule.synchronous()) {
    status.Update(CheckRange("training.slots", rule.slots, 1, kSlotsMax));
    status.Update(CheckRange("consistency.bsp.backups", rule.backups, 0, rule.slots - 1));
  } else {
    status.Update(CheckRange("consistency.bsp.backups", rule.backups, 0, 0));
  }
  status.Update(CheckRange("consistency.ssp.staleness_bound", rule.staleness_bound, 0, kIntMax));
  return status;
}

// REQUIRES: CheckConsistency is OK.
absl::Status CheckSamples(const JobPlan& plan) {
  absl::Status status = CheckRange("training.epochs", plan.epochs, 1, kIntMax);
  status.Update(CheckRange("training.batch_size", plan.batch_size, 1, kIntMax));
  if (!status.ok()) return status;
  const ConsistencyRule& rule = plan.consistency;
  // An epoch has a step, and with backups a whole one.
  const int64_t least = rule.backups > 0 ? plan.batch_size * rule.slots : 1;
  status.Update(
      CheckRange("data.train: examples", plan.train_count, least, kSamplesMax / plan.epochs));
  status.Update(CheckCount("data.test: examples", plan.test_count, kSamplesMax / 2));
  status.Update(CheckCount("data.validation: examples", plan.validation_count, kSamplesMax / 2));
  if (!status.ok()) return status;
  const int64_t evaluated = std::max<int64_t>(1, plan.test_count + plan.validation_count);
  status.Update(CheckRange("scores of an example", plan.scores, 1, kSamplesMax / evaluated));
  status.Update(CheckCount("training.iterations_max", plan.iterations_max, kInt64Max));
  return status;
}

// REQUIRES: CheckSamples is OK.
absl::Status CheckOwnPace(const JobPlan& plan) {
  if (!plan.own_pace) return absl::OkStatus();
  absl::Status status = CheckRange("training.epochs", plan.epochs, 1, 1);
  status.Update(CheckRange("training.batch_size", plan.batch_size, 1, 1));
  status.Update(CheckRange("runs of the program", plan.train_count, plan.workers, plan.workers));
  if (plan.consistency.mode == ConsistencyMode::kAsp) return status;
  status.Update(absl::DataLossError("consistency: expected asp beside program.own_pace"));
  return status;
}

absl::Status CheckDevice(const DeviceNeed& device) {
  const int least = device.kind == DeviceNeed::Kind::kCpu ? 0 : 1;
  absl::Status status = CheckRange("resources.gpus", device.gpus, least, kGpusPerTaskMax);
  status.Update(CheckRange("resources.device: index", device.index, -1, kIntMax));
  return status;
}

absl::Status CheckTable(const TableSize& table) {
  const int64_t most = table.sparse ? kSparseBucketsMax : kTableElementsMax;
  absl::Status status = CheckCount("elements of a table", table.elements, most);
  int64_t before = 0;
  for (const int64_t end : table.tensor_ends) {
    status.Update(CheckRange("end of a tensor", end, before, table.elements));
    before = end;
  }
  return status;
}

}  // namespace

absl::Status CheckPlan(const JobPlan& plan) {
  absl::Status status = CheckConsistency(plan.consistency);
  status.Update(CheckRange("resources.workers", plan.workers, 1, kWorkersMax));
  status.Update(CheckRange("resources.servers", plan.servers, 0, kIntMax));
  status.Update(CheckRange("resources.replicas", plan.replicas, 0, kReplicasMax));
  status.Update(CheckRange("resources.max_restarts", plan.max_restarts, 0, kIntMax));
  status.Update(CheckDevice(plan.device));
  if (status.ok()) status.Update(CheckSamples(plan));
  if (status.ok()) status.Update(CheckOwnPace(plan));
  for (const TableSize& table : plan.tables) status.Update(CheckTable(table));
  status.Update(CheckRange("ttl_seconds", plan.ttl_seconds, 0, kTtlSecondsMax));
  status.Update(CheckCount("checkpoints.every_iterations", plan.checkpoint_iterations, kInt64Max));
  status.Update(CheckRange("checkpoints.keep", plan.checkpoints_kept, 1, kIntMax));
  status.Update(CheckCount("checkpoint floor", plan.checkpoint_floor.value()));
  status.Update(
      CheckRange("training.early_stopping.patience", plan.decide.stop_patience, 0, kIntMax));
  status.Update(
      CheckRange("training.reduce_on_plateau.patience", plan.decide.plateau_patience, 0, kIntMax));
  return status;
}

}  // namespace capstan::scheduler
