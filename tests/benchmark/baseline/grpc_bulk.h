// gRPC with protobuf `bytes`, at defaults: what bulk_goodput compares with.
//
// Only the limit of message sizes is raised, since at its default of 4 MiB nothing larger can be
// sent. As anybody with a tensor must, the client copies it into the message and the answer out of
// it.
// Thread safety: thread-compatible; the service is thread-safe.
#ifndef CAPSTAN_TESTS_BENCHMARK_BASELINE_GRPC_BULK_H_
#define CAPSTAN_TESTS_BENCHMARK_BASELINE_GRPC_BULK_H_

#include <grpcpp/server.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/benchmark/baseline/bulk.grpc.pb.h"
#include "tests/benchmark/baseline/tcp_bulk.h"
#include "tests/benchmark/turns.h"

namespace capstan::benchmark {

class GrpcBulkServer {
 public:
  // Listens on a free port of loopback.
  // Errors: kUnavailable  there is none.
  static absl::StatusOr<std::unique_ptr<GrpcBulkServer>> Start();
  int port() const { return port_; }
  void Wait() { server_->Wait(); }  // Waits until the process is killed.

 private:
  class Service final : public bulk::Bulk::Service {
    grpc::Status Push(grpc::ServerContext*, const bulk::PushBytes* request, bulk::Done*) override;
    grpc::Status Pull(grpc::ServerContext*, const bulk::PullBytes* request,
                      bulk::PulledBytes* response) override;
  };

  Service service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

class GrpcBulk {
 public:
  explicit GrpcBulk(int port);

  // Moves `count` messages of `bytes` in `direction`, each timed; kBoth: a push and a pull at once.
  // `processor`: as OperationTimer's.
  absl::StatusOr<Turn> Run(Direction direction, int64_t bytes, int64_t count,
                           const std::function<double()>& processor);

 private:
  absl::Status Move(Direction direction, int64_t bytes);

  const std::unique_ptr<bulk::Bulk::Stub> stub_;
  std::vector<char> out_, in_;
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_BASELINE_GRPC_BULK_H_
