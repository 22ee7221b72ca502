// ZmqFleet: ZeroMQ's servers, processes of their own, and its workers, threads of this one.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_BASELINE_ZMQ_FLEET_H_
#define CAPSTAN_TESTS_BENCHMARK_BASELINE_ZMQ_FLEET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/benchmark/baseline/peer_process.h"
#include "tests/benchmark/baseline/zmq_table.h"

namespace capstan::benchmark {

class ZmqFleet {
 public:
  // All push `gradient`, which is borrowed, cut into so many tensors.
  ZmqFleet(int workers, int servers, int tensors, const std::vector<float>& gradient)
      : worker_count_(workers), server_count_(servers), tensors_(tensors), gradient_(gradient) {}

  // `program`: baseline_server.
  absl::Status Start(const std::string& program, const std::string& folder);
  // Iterations of every worker, all at once: each pushes and pulls everything.
  absl::Status Run(int iterations);
  double Processor() const;  // Seconds of all processes so far.
  // Pushes once more; then the table must hold the exact sum of all pushes.
  absl::Status CheckSums();

 private:
  struct Worker {
    std::unique_ptr<ZmqWorker> zmq;
    std::vector<float> values;
  };
  absl::Status RunWorker(Worker& one, int iterations) const;

  const int worker_count_, server_count_, tensors_;
  const std::vector<float>& gradient_;
  std::vector<std::unique_ptr<PeerProcess>> servers_;
  std::vector<Worker> workers_;
  int64_t pushes_ = 0;
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_BASELINE_ZMQ_FLEET_H_
