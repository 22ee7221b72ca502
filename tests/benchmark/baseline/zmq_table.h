// ZeroMQ with a server that adds into a table: the transport of ps-lite (a ROUTER and DEALERs), as
// what dense_push_pull compares with.
//
// A push is [head][values], a pull [head]; both are answered with [head], the pull with the values
// behind it. Messages of one connection are served in order, so that a pull may follow its push at
// once. Values are sent from where they lie (zero-copy), the server's from its table: what one
// worker reads while another one pushes may be partly newer. A worker has the values of its own
// pushes.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_BASELINE_ZMQ_TABLE_H_
#define CAPSTAN_TESTS_BENCHMARK_BASELINE_ZMQ_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/benchmark/baseline/zmq_socket.h"

namespace capstan::benchmark {

class ZmqTableServer {
 public:
  // Listens on a free port of loopback.
  // Errors: kUnavailable  ZeroMQ refuses; says why.
  static absl::StatusOr<std::unique_ptr<ZmqTableServer>> Start();
  int port() const { return listener_.port; }
  // Serves until something fails: kInvalidArgument  a message that is none of the above.
  absl::Status Serve();

 private:
  explicit ZmqTableServer(ZmqListener listener) : listener_(std::move(listener)) {}
  absl::Status ServeOne();

  const ZmqListener listener_;
  std::unordered_map<int64_t, std::vector<float>> table_;  // Keyed by tensor.
};

// One worker's connections to the servers; tensor i is on server i modulo their number.
class ZmqWorker {
 public:
  static absl::StatusOr<std::unique_ptr<ZmqWorker>> Connect(const std::vector<int>& ports);

  // Pushes every tensor of `gradient` (cut evenly) and pulls all after it into `values`; returns
  // once both have been answered. `gradient` must live as long as the worker.
  // Errors: kUnavailable, kInternal  something failed, or an answer is not what was asked for.
  absl::Status PushPull(int tensors, absl::Span<const float> gradient, absl::Span<float> values);

 private:
  explicit ZmqWorker(ZmqContext context) : context_(std::move(context)) {}
  absl::Status ReceiveAll(int tensors, absl::Span<float> values);

  const ZmqContext context_;
  std::vector<ZmqSocket> sockets_;
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_BASELINE_ZMQ_TABLE_H_
