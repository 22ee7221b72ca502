// SparseContender: a server process with a sparse table, and a worker that pushes and pulls rows of
// it by key with the real client library. One job, ASP; gradients are added up (SGD, a rate of 1).
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_SPARSE_CONTENDER_H_
#define CAPSTAN_TESTS_BENCHMARK_SPARSE_CONTENDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/time/clock.h"
#include "proto/scheduler.pb.h"
#include "tests/benchmark/live_server.h"
#include "worker/client/push_pull_client.h"

namespace capstan::benchmark {

class SparseContender {
 public:
  struct Options {
    std::string server;  // Path of the daemon.
    std::string folder;  // Folder of the server; it is made.
    int64_t dim = 1;
    bool shared_memory = false;
  };
  static absl::StatusOr<std::unique_ptr<SparseContender>> Start(const Options& options);

  // Goes on as another task, whose batches have about so many keys.
  absl::Status ExpectKeys(int64_t batch_keys);
  // Pushes a row for each key, which may repeat, and pulls the rows of all after it.
  absl::Status PushPull(absl::Span<const uint64_t> keys, absl::Span<const float> gradients);
  // The row of keys[i] of the last PushPull, as gradients add up: minus the weights.
  float Sum(size_t i, int64_t column) const;
  double Processor() const;  // Seconds of both processes so far.

 private:
  explicit SparseContender(const Options& options) : options_(options) {}

  const Options options_;
  const SteadyClock clock_;
  std::unique_ptr<LiveServer> server_;
  v1::TableAssignment assignment_;
  uint64_t incarnation_ = 0;
  std::unique_ptr<worker::PushPullClient> client_;
  int64_t iteration_ = 0;
  std::vector<uint32_t> places_;  // Places of the last keys among the pulled ones.
  worker::TableArrays values_;
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_SPARSE_CONTENDER_H_
