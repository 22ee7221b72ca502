// Raw TCP: what bulk_goodput compares with. Messages of one size over one connection, both ends
// with one thread, from and into the same memory each time.
//
// A client sends 24 bytes with its payload behind them, if it has one. The server sends its sums at
// the same time, if they are asked for. It adds a payload to its sums, as fp32, and then sends 24
// bytes. A push that is not timed comes before each pull, as for Capstan: sums that the server has
// just changed are no longer where they were sent from last. Streamed, messages follow each other
// without any of these, nothing is added, and 24 bytes at the end say that all have arrived.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_BASELINE_TCP_BULK_H_
#define CAPSTAN_TESTS_BENCHMARK_BASELINE_TCP_BULK_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/benchmark/baseline/socket.h"
#include "tests/benchmark/turns.h"

namespace capstan::benchmark {

enum class Direction { kPush, kPull, kBoth };

// Serves one client until it is gone.
absl::Status ServeTcpBulk(Socket& connection);

class TcpBulk {
 public:
  // A client of the server at `port`.
  static absl::StatusOr<TcpBulk> Connect(int port);

  // Moves `count` messages of `bytes`, a multiple of 4, in `direction`, each timed, or all together
  // if `streamed`. `processor`: as OperationTimer's.
  absl::StatusOr<Turn> Run(Direction direction, int64_t bytes, int64_t count, bool streamed,
                           const std::function<double()>& processor);

 private:
  explicit TcpBulk(Socket socket) : socket_(std::move(socket)) {}

  // Moves one message each way, or so many of them.
  absl::Status Operate(Direction direction, int64_t bytes, int64_t streamed);

  Socket socket_;
  std::vector<float> out_, in_;
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_BASELINE_TCP_BULK_H_
