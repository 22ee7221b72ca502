// Fixtures for tests of ProgramComputation: a job, a work of it, and the task that offers the work.
// Thread safety: TrainingTask is thread-compatible; its members are read after Join.
#ifndef CAPSTAN_WORKER_PROGRAM_TESTING_TRAINING_TASK_H_
#define CAPSTAN_WORKER_PROGRAM_TESTING_TRAINING_TASK_H_

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/testing/status_matchers.h"
#include "common/types/ids.h"
#include "proto/job.pb.h"
#include "worker/program/program_computation.h"

namespace capstan::worker {

// A program of 10 samples with 3 parameters, of which the last is "b", and 2 averages.
inline v1::JobSpec Job() {
  v1::JobSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(R"(
    program {
      command: "train" samples: 10
      parameters { name: "w" shape: 2 } parameters { name: "b" }
      averages { name: "mean" shape: 2 }
    }
    training { epochs: 1 batch_size: 4 }
  )",
                                                        &spec));
  return spec;
}

// The slots 1 and 2 of iteration 3, with the samples at [begin, end).
inline Work TrainingWork(int64_t begin, int64_t end, int64_t gradient_samples) {
  Work work;
  work.kind = Work::Kind::kTrain;
  work.iteration = Iteration(3);
  work.slots = {1, 2};
  work.positions = {begin, end};
  work.gradient_samples = gradient_samples;
  return work;
}

// The task's side: a thread that offers one work and keeps the result.
class TrainingTask {
 public:
  TrainingTask(ProgramComputation* computation, const Work& work) {
    REQUIRE_OK(computation->BeginPull(work, {}, &parameters).status());
    parameters[0] = {1, 2, 3};
    computation->BeginTraining(work, &parameters, &gradient);
    thread_ = std::thread([this, computation, work] {
      result =
          computation->Train(work, &gradient, [this](int64_t first) { released.push_back(first); });
    });
  }
  ~TrainingTask() { Join(); }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }

  TableArrays parameters;
  GradientArrays gradient;
  std::vector<int64_t> released;
  absl::StatusOr<WorkResult> result;

 private:
  std::thread thread_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PROGRAM_TESTING_TRAINING_TASK_H_
