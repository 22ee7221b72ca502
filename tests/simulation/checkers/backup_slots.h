// BackupSlots: each update of a BSP job with backups is made of as many slots of its iteration as
// the job says, each once, and nobody reads anything else.
//
// The gradient of a slot names it (Workload::SlotGradient), so that the difference between the
// parameters of two iterations in a row tells which slots are in the update. Shards may have taken
// different ones. Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_CHECKERS_BACKUP_SLOTS_H_
#define CAPSTAN_TESTS_SIMULATION_CHECKERS_BACKUP_SLOTS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "tests/simulation/world/checker.h"
#include "tests/simulation/world/history.h"
#include "tests/simulation/world/workload.h"

namespace capstan::sim {

class BackupSlots final : public Checker {
 public:
  explicit BackupSlots(const Workload* workload) : workload_(workload) {}

  void ComputationBegun(const TaskKey& task_key, const Batch& batch,
                        const std::vector<std::vector<float>>& parameters) override;
  void Exported(const TaskKey& task_key, const std::vector<std::vector<float>>& tables,
                const std::map<TableId, Version>& versions) override;
  void Happened(const scheduler::Event& event) override { history_.Happened(event, versions_); }

 private:
  // Takes in the parameters of an iteration, and compares them with what is known.
  void Read(int64_t iteration, const Arrays& parameters);
  // `after`: the parameters once the iteration is applied.
  void CheckUpdate(int64_t iteration, const Arrays& before, const Arrays& after);

  const Workload* const workload_;
  using Versions = std::map<int64_t, Arrays>;  // Keyed by iteration.
  Versions versions_;
  History<Versions> history_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_CHECKERS_BACKUP_SLOTS_H_
