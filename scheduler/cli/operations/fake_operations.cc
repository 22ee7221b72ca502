#include "scheduler/cli/operations/fake_operations.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "common/testing/status_matchers.h"

namespace capstan::cli {

FakeOperations::FakeOperations() {
  REQUIRE_OK_AND_ASSIGN(server_, GrpcServer::Start({.services = {this}}));
}

grpc::Status FakeOperations::DrainNode(grpc::ServerContext*, const v1::DrainNodeRequest* request,
                                       v1::DrainNodeResponse* response) {
  if (request->node_id() != "server-1") {
    return {grpc::StatusCode::NOT_FOUND, "no node " + request->node_id()};
  }
  const size_t call = drain_requests.size();
  drain_requests.push_back(*request);
  on_call();
  *response = drains[std::min(call, drains.size() - 1)];
  return grpc::Status::OK;
}

grpc::Status FakeOperations::SaveCheckpoint(grpc::ServerContext*,
                                            const v1::SaveCheckpointRequest* request,
                                            v1::SaveCheckpointResponse* response) {
  save_requests.push_back(*request);
  *response = saved;
  return grpc::Status::OK;
}

grpc::Status FakeOperations::SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest* request,
                                       v1::SubmitJobResponse* response) {
  submit_requests.push_back(*request);
  response->set_job_id("a-2");
  return grpc::Status::OK;
}

}  // namespace capstan::cli
