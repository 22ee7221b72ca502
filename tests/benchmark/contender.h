// Contender: one configuration of ours that is measured: its server processes and its workers.
//
// The workers are in this process, each with the real client library. An iteration pushes a
// gradient of the whole table and pulls the values after it, both under way at once, as a task
// does; several workers do so at once, each on a thread of its own.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_CONTENDER_H_
#define CAPSTAN_TESTS_BENCHMARK_CONTENDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/grpc/credentials.h"
#include "common/time/clock.h"
#include "proto/job.pb.h"
#include "tests/benchmark/live_server.h"
#include "worker/client/push_pull_client.h"

namespace capstan::benchmark {

inline constexpr char kContenderJob[] = "push-pull-1";

// A table of equal tensors, and perhaps another one before them.
struct Layout {
  std::string name;
  int tensors = 1;
  int64_t elements = 0;        // Elements of one tensor.
  int64_t first_elements = 0;  // Elements of a tensor before them; 0: there is none.
  int64_t count() const { return first_elements + tensors * elements; }
  // The range of each tensor in the table.
  std::vector<Range> Ranges() const;
  double mebibytes() const { return static_cast<double>(count()) * sizeof(float) / (1 << 20); }
};

enum class Mode { kAsp, kBsp };

enum class Rule { kMomentum, kSgd };

struct Config {
  std::string name;
  std::string server;  // Path of the daemon.
  int servers = 1;
  int workers = 1;
  Rule rule = Rule::kMomentum;
  int replicas = 0;  // Each on a server of its own beside the only other one.
  v1::Durability durability = v1::NONE;
  NumberFormat format = NumberFormat::kFp32;  // Format of gradients and parameters on the wire.
  bool tensor_shards = false;                 // Each tensor is a shard; else as the scheduler cuts.
  // Gradients leave one after the other, the last first, as a backward pass makes them.
  bool layer_by_layer = false;
  bool shared_memory = false;    // Between workers and servers, instead of TCP.
  bool data_connections = true;  // Beside gRPC: whether workers ask for them, and
  std::string data_listen = {};  // what --data-listen of servers says.
  // Encrypted: the folder of a local cluster's certificates (local_certificates.h), for servers
  // and worker-1. Empty: plain text.
  std::string tls_folder = {};
};

class Contender {
 public:
  // REQUIRES: config.servers is 1, or config.replicas is 0.
  Contender(Config config, Layout layout, Mode mode);

  // Starts the servers in `folder`, which is made, and pulls once. All iterations push `gradient`.
  absl::Status Start(const std::string& folder,
                     std::shared_ptr<const worker::TableArrays> gradient);
  // Each worker pushes and pulls so many times.
  absl::Status Run(int iterations);
  void StopWorkers() { workers_.clear(); }
  // One half of an iteration of the first worker, which must be the only one.
  absl::Status Push();
  absl::Status Pull();
  absl::Status BeginPush() { return StartPush(workers_[0]).status(); }

  struct Speed {
    double rate = 0;       // MiB/s of both directions and all workers together.
    double processor = 0;  // Seconds of all processes for each GiB of that.
  };
  absl::StatusOr<Speed> Measure(int iterations);  // Same as Run.
  // Errors: a push was recorded more or less often than once.
  absl::Status CheckRecorded() const;

  worker::MessageCounts Counts() const;  // Sums over all workers.

  const Config& config() const { return config_; }
  const LiveServer& server(size_t index) const { return *servers_[index]; }
  LiveServer& server(size_t index) { return *servers_[index]; }
  // The values of the first worker's last pull.
  const worker::TableArrays& values() const { return workers_[0].values; }
  // Seconds of all processes so far.
  double Processor() const;

 private:
  struct Worker {
    Rank rank;
    worker::TableArrays values;
    std::unique_ptr<worker::PushPullClient> client;
    int64_t iteration = 0;
  };
  absl::Status StartServers(const std::string& folder);
  absl::Status StartWorkers(const v1::RoutingTable& routing);
  absl::Status RunWorker(Worker& worker, int iterations) const;
  absl::StatusOr<worker::OpId> StartPush(Worker& worker) const;
  absl::StatusOr<worker::OpId> StartPull(Worker& worker) const;

  const Config config_;
  const Layout layout_;
  const Mode mode_;
  const SteadyClock clock_;
  // Null: plain text.
  std::unique_ptr<Credentials> scheduler_credentials_, worker_credentials_, user_credentials_;
  std::vector<std::unique_ptr<LiveServer>> servers_;
  std::shared_ptr<const worker::TableArrays> gradient_;  // Shared by all contenders.
  std::vector<Worker> workers_;
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_CONTENDER_H_
