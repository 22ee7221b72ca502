// ReferenceTrainer: what a BSP job comes to, in one loop without network, servers or workers.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_TESTS_SIMULATION_CHECKERS_REFERENCE_TRAINER_H_
#define CAPSTAN_TESTS_SIMULATION_CHECKERS_REFERENCE_TRAINER_H_

#include <cstdint>

#include "tests/simulation/world/workload.h"

namespace capstan::sim {

struct ReferenceResult {
  Arrays tables;
  int64_t iterations = 0;
};

ReferenceResult TrainReference(const Workload& workload);

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_CHECKERS_REFERENCE_TRAINER_H_
