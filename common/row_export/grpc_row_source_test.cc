#include "common/row_export/grpc_row_source.h"

#include <catch2/catch.hpp>
#include <memory>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/net/grpc/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "proto/parameter_server.grpc.pb.h"

namespace capstan::grpc_row_source_test {
namespace {

// Answers with the place that it is asked for as the version; holds calls for bucket 1.
class OneServer final : public v1::ParameterServer::Service {
 public:
  OneServer() {
    server_ = GrpcServer::Start({.services = {this}}).value();
    address_.set_address(server_->address());
  }
  ~OneServer() override { server_.reset(); }

  grpc::Status ScanRows(grpc::ServerContext* context, const v1::ScanRowsRequest* request,
                        v1::ScanRowsResponse* response) override {
    if (request->shard() == 2) return {grpc::StatusCode::NOT_FOUND, "not held here"};
    if (request->shard() == 1) {
      held.Notify();
      while (!context->IsCancelled()) std::this_thread::yield();
    }
    response->set_version(static_cast<int64_t>(request->place()));
    return grpc::Status::OK;
  }
  const v1::ServerAddress& address() const { return address_; }
  absl::Notification held;

 private:
  std::unique_ptr<GrpcServer> server_;
  v1::ServerAddress address_;
};

v1::ScanRowsRequest RequestOf(int32_t bucket, uint64_t place) {
  v1::ScanRowsRequest request;
  request.set_shard(bucket);
  request.set_place(place);
  return request;
}

TEST_CASE("Row source: a server's answer and its errors come over the network", "[common]") {
  OneServer first, second;
  GrpcRowSource source({.newest_routing = [] {
    v1::RoutingTable routing;
    routing.set_generation(7);
    return routing;
  }});
  for (OneServer* server : {&first, &second, &first}) {
    REQUIRE_OK_AND_ASSIGN(const auto response, source.ScanRows(server->address(), RequestOf(0, 5)));
    CHECK(response.version() == 5);
  }
  CHECK_STATUS(source.ScanRows(first.address(), RequestOf(2, 5)), absl::StatusCode::kNotFound,
               "not held here");
  CHECK(source.NewestRouting().value().generation() == 7);
  REQUIRE_OK(source.Pause(absl::Milliseconds(1)));
  v1::ServerAddress nobody;
  nobody.set_address("127.0.0.1:1");
  CHECK(source.ScanRows(nobody, RequestOf(0, 5)).status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("Row source: an interruption ends the call in flight and what comes after", "[common]") {
  OneServer server;
  GrpcRowSource source({.newest_routing = [] { return v1::RoutingTable(); }});
  std::thread interrupter([&] {
    server.held.WaitForNotification();
    source.Interrupt();
  });
  CHECK_STATUS(source.ScanRows(server.address(), RequestOf(1, 0)), absl::StatusCode::kCancelled,
               "interrupted");
  interrupter.join();
  CHECK_STATUS(source.Pause(absl::Hours(1)), absl::StatusCode::kCancelled, "interrupted");
  CHECK_STATUS(source.ScanRows(server.address(), RequestOf(0, 0)), absl::StatusCode::kCancelled,
               "interrupted");
}

}  // namespace
}  // namespace capstan::grpc_row_source_test
