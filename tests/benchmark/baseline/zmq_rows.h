// ZeroMQ with a server that adds into rows by key, held in a std::unordered_map: what ps-lite's
// default handler does (KVServerDefaultHandle: `store[key] += value`), with its transport.
//
// A push is [head][keys][values], a pull [head][keys]; a push is answered with [head], a pull with
// [head][values]. A worker's keys and values are sent from where they lie. Rows of one float are
// held in the map itself, others as a vector each.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_BASELINE_ZMQ_ROWS_H_
#define CAPSTAN_TESTS_BENCHMARK_BASELINE_ZMQ_ROWS_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/benchmark/baseline/zmq_socket.h"

namespace capstan::benchmark {

class ZmqRowsServer {
 public:
  static absl::StatusOr<std::unique_ptr<ZmqRowsServer>> Start();
  int port() const { return listener_.port; }
  // Serves until something fails: kInvalidArgument  a message that is none of the above.
  absl::Status Serve();

 private:
  explicit ZmqRowsServer(ZmqListener listener) : listener_(std::move(listener)) {}
  absl::Status ServeOne();
  void Add(absl::Span<const uint64_t> keys, int64_t dim, const float* values);
  void Read(absl::Span<const uint64_t> keys, int64_t dim);  // Into answer_.

  const ZmqListener listener_;
  std::unordered_map<uint64_t, float> numbers_;            // Rows of dim 1.
  std::unordered_map<uint64_t, std::vector<float>> rows_;  // Others.
  std::vector<float> answer_;
};

class ZmqRowsWorker {
 public:
  static absl::StatusOr<std::unique_ptr<ZmqRowsWorker>> Connect(int port);

  // Pushes a row for each key and pulls all of them after it into `values`; returns once both have
  // been answered. Errors: kUnavailable, kInternal  something failed, or an answer is not what was
  // asked for.
  absl::Status PushPull(absl::Span<const uint64_t> keys, int64_t dim,
                        absl::Span<const float> gradients, absl::Span<float> values);

 private:
  explicit ZmqRowsWorker(ZmqContext context)
      : context_(std::move(context)), socket_(nullptr, zmq_close) {}
  const ZmqContext context_;
  ZmqSocket socket_;
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_BASELINE_ZMQ_ROWS_H_
