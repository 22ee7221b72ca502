// ReferenceBits: a BSP job's model has the bits of the reference trainer's, whatever the number of
// workers and servers and whatever has happened to them.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_CHECKERS_REFERENCE_BITS_H_
#define CAPSTAN_TESTS_SIMULATION_CHECKERS_REFERENCE_BITS_H_

#include <map>
#include <vector>

#include "tests/simulation/world/checker.h"
#include "tests/simulation/world/workload.h"

namespace capstan::sim {

class ReferenceBits final : public Checker {
 public:
  explicit ReferenceBits(const Workload* workload) : workload_(workload) {}

  void Exported(const TaskKey& task_key, const std::vector<std::vector<float>>& tables,
                const std::map<TableId, Version>& versions) override;

 private:
  const Workload* const workload_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_CHECKERS_REFERENCE_BITS_H_
