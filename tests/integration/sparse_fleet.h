// SparseFleet: a model on sparse features trained through real server processes: workers, each with
// the real client library on a thread of its own, that share the examples of an epoch.
//
// The tables are those of a job (common/sparse_models/model_of_job.h). There is no scheduler process: a
// fake one tells the servers what to hold. Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_INTEGRATION_SPARSE_FLEET_H_
#define CAPSTAN_TESTS_INTEGRATION_SPARSE_FLEET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/examples/example_batch.h"
#include "common/sparse_models/sparse_model.h"
#include "common/time/clock.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "tests/benchmark/live_server.h"
#include "worker/client/push_pull_client.h"

namespace capstan::testing {

class SparseFleet {
 public:
  struct Options {
    std::string program;  // Path of capstan-server.
    std::string folder;   // Of the servers; is made.
    int servers = 2;
    int workers = 2;
    int32_t buckets = 8;
    int64_t batch_size = 100;
    v1::Optimizer optimizer;
    v1::Consistency consistency;  // SSP or ASP.
    bool shared_memory = true;
    // A worker's own.
    std::function<std::unique_ptr<SparseModel>()> make_model;
  };

  static absl::StatusOr<std::unique_ptr<SparseFleet>> Start(const Options& options);

  // One pass over the examples by all workers at once: batch i is worker i % workers's.
  // Returns the mean loss of the examples, each before its batch was trained.
  absl::StatusOr<double> TrainEpoch(const ExampleBatch& examples);
  // Outputs for all examples, by what the servers hold now.
  absl::StatusOr<std::vector<float>> Predict(const ExampleBatch& examples);

 private:
  struct Worker {
    std::unique_ptr<SparseModel> model;
    std::unique_ptr<worker::PushPullClient> client;
    int64_t iteration = 0;
    worker::TableArrays parameters;
    double loss_sum = 0;
  };
  struct Batch;  // Examples with the rows that they need.

  explicit SparseFleet(const Options& options) : options_(options) {}
  absl::Status StartServers();
  absl::Status StartWorkers();
  absl::StatusOr<Batch> Pull(Worker& worker, ExampleBatch examples, worker::PullMode mode) const;
  absl::Status TrainBatch(Worker& worker, ExampleBatch examples) const;

  const Options options_;
  const SteadyClock clock_;
  std::vector<std::unique_ptr<benchmark::LiveServer>> servers_;
  v1::TableAssignment assignment_;
  std::vector<Worker> workers_;
};

}  // namespace capstan::testing

#endif  // CAPSTAN_TESTS_INTEGRATION_SPARSE_FLEET_H_
