#include "tests/simulation/checkers/backup_slots.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "scheduler/core/plan/epoch_plan.h"

namespace capstan::sim {

void BackupSlots::ComputationBegun(const TaskKey& task_key, const Batch& batch,
                                   const std::vector<std::vector<float>>& parameters) {
  if (!history_.IsOld(task_key)) Read(batch.iteration.value(), parameters);
}

void BackupSlots::Exported(const TaskKey& task_key, const std::vector<std::vector<float>>& tables,
                           const std::map<TableId, Version>& versions) {
  if (history_.IsOld(task_key)) return;
  const int64_t iterations = scheduler::EpochPlan(workload_->job()->plan).steps_total();
  for (const auto& [table, version] : versions) {
    if (version.value() == iterations) continue;
    Fail(absl::StrCat("backups: table ", table.value(), " was exported at version ",
                      version.value(), ", expected ", iterations));
  }
  Read(iterations, tables);
}

void BackupSlots::Read(int64_t iteration, const Arrays& parameters) {
  const auto [known, is_new] = versions_.try_emplace(iteration, parameters);
  if (!is_new) {
    if (known->second == parameters) return;
    return Fail(absl::StrCat("backups: iteration ", iteration,
                             " was computed with two sets of parameters"));
  }
  const auto before = versions_.find(iteration - 1), after = versions_.find(iteration + 1);
  if (before != versions_.end()) CheckUpdate(iteration - 1, before->second, parameters);
  if (after != versions_.end()) CheckUpdate(iteration, parameters, after->second);
}

void BackupSlots::CheckUpdate(int64_t iteration, const Arrays& before, const Arrays& after) {
  const JobOptions& job = workload_->options();
  const float unit = Workload::SlotGradient(Iteration(iteration), 0);
  for (size_t t = 0; t < before.size(); ++t) {
    for (size_t i = 0; i < before[t].size(); ++i) {
      const float units = (before[t][i] - after[t][i]) / unit;
      const auto slots = static_cast<uint32_t>(units);
      if (units >= 0 && units == static_cast<float>(slots) && slots >> job.slots == 0 &&
          std::popcount(slots) == job.slots - job.backups) {
        continue;
      }
      Fail(absl::StrCat("backups: element ", i, " of table ", t, " went from ", before[t][i],
                        " to ", after[t][i], " with iteration ", iteration, ", expected ",
                        job.slots - job.backups, " of its ", job.slots, " slots, of ", unit,
                        " times a power of two each"));
    }
  }
}

}  // namespace capstan::sim
