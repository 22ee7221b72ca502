// Contender: one configuration of push_pull_cost: its server processes and its worker.
//
// The worker is this process with the real client library. An iteration pushes a gradient of the
// whole table and pulls the values after it, both under way at once, as a task does.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_CONTENDER_H_
#define CAPSTAN_TESTS_BENCHMARK_CONTENDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/time/clock.h"
#include "proto/job.pb.h"
#include "tests/benchmark/live_server.h"
#include "worker/client/push_pull_client.h"

namespace capstan::benchmark {

// A table of equal tensors.
struct Layout {
  std::string name;
  int tensors = 1;
  int64_t elements = 0;  // Of one tensor.
  int64_t count() const { return tensors * elements; }
  double mebibytes() const { return static_cast<double>(count()) * sizeof(float) / (1 << 20); }
};

enum class Mode { kAsp, kBsp };

struct Config {
  std::string name;
  std::string server;  // Path of the daemon.
  int replicas = 0;
  v1::Durability durability = v1::NONE;
};

class Contender {
 public:
  Contender(Config config, Layout layout, Mode mode);

  // Starts the servers in `folder`, which is made, and pulls once. All iterations push `gradient`.
  absl::Status Start(const std::string& folder,
                     std::shared_ptr<const worker::TableArrays> gradient);
  // Pushes and pulls so many times.
  absl::Status Run(int iterations);
  struct Speed {
    double rate = 0;       // MiB/s of both directions together.
    double processor = 0;  // Seconds of all processes for each GiB of that.
  };
  absl::StatusOr<Speed> Measure(int iterations);  // As Run.
  // Errors: a push was recorded more or less often than once.
  absl::Status CheckRecorded() const;

  const Config& config() const { return config_; }
  const worker::TableArrays& values() const { return values_; }

 private:
  double Processor() const;

  const Config config_;
  const Layout layout_;
  const Mode mode_;
  const SteadyClock clock_;
  std::vector<std::unique_ptr<LiveServer>> servers_;
  std::shared_ptr<const worker::TableArrays> gradient_;  // Shared by all contenders.
  worker::TableArrays values_;
  std::unique_ptr<worker::PushPullClient> client_;
  int64_t iteration_ = 0;
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_CONTENDER_H_
