#include "common/net/grpc_types/grpc_status.h"

#include <catch2/catch.hpp>

#include "common/testing/status_matchers.h"

namespace capstan::grpc_status_test {
namespace {

TEST_CASE("gRPC status: every code and its message survive the way there and back", "[net]") {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "shard 7 is not here");
    CAPTURE(code);
    CHECK(static_cast<int>(ToGrpcStatus(status).error_code()) == code);
    CHECK(FromGrpcStatus(ToGrpcStatus(status)) == status);
  }
}

TEST_CASE("gRPC status: ok is ok", "[net]") {
  CHECK(ToGrpcStatus(absl::OkStatus()).ok());
  CHECK(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST_CASE("gRPC status: a code that is not canonical is unknown", "[net]") {
  const grpc::Status strange(grpc::StatusCode::DO_NOT_USE, "what?");
  CHECK(FromGrpcStatus(strange) == absl::UnknownError("what?"));
}

TEST_CASE("gRPC status: what no handler has said is a lost call (issue 20)", "[net]") {
  for (const auto code : {grpc::StatusCode::UNKNOWN, grpc::StatusCode::INTERNAL}) {
    CHECK_STATUS(FromGrpcStatus(grpc::Status(code, "Stream removed")),
                 absl::StatusCode::kUnavailable, "the transport lost the call: Stream removed");
  }
  const grpc::Status told(grpc::StatusCode::NOT_FOUND, "no such job");
  CHECK(FromGrpcStatus(told) == absl::NotFoundError("no such job"));
}

}  // namespace
}  // namespace capstan::grpc_status_test
