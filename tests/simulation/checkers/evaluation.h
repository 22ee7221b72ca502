// Evaluation: the result of an epoch is that of all test samples of this epoch, each counted once,
// whoever has evaluated them and however often: loss, accuracy and AUC.
//
// The result of a sample follows from its number, the epoch and the job. Losses are whole numbers,
// so that their sum does not depend on how the samples were divided.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_CHECKERS_EVALUATION_H_
#define CAPSTAN_TESTS_SIMULATION_CHECKERS_EVALUATION_H_

#include <cstdint>

#include "common/metrics/score_counts.h"
#include "common/types/ids.h"
#include "tests/simulation/world/checker.h"
#include "tests/simulation/world/job_options.h"

namespace capstan::sim {

// Results of test samples.
struct Evaluated {
  double loss_sum = 0;
  int64_t correct = 0;
  ScoreCounts scores = {};
};

Evaluated Evaluate(const JobOptions& job, Epoch epoch, const Range& positions);

class Evaluation final : public Checker {
 public:
  explicit Evaluation(const JobOptions& job) : job_(job) {}

  void Happened(const scheduler::Event& event) override;

 private:
  const JobOptions job_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_CHECKERS_EVALUATION_H_
