#include "scheduler/cli/operations/testing/fake_operations.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <utility>

#include "common/testing/status_matchers.h"

namespace capstan::cli {

FakeOperations::FakeOperations(Answers answers) : answers_(std::move(answers)) {
  REQUIRE_OK_AND_ASSIGN(server_, GrpcServer::Start({.services = {this}}));
}

std::vector<v1::DrainNodeRequest> FakeOperations::drain_requests() const {
  absl::MutexLock lock(&mutex_);
  return drain_requests_;
}

std::vector<v1::SaveCheckpointRequest> FakeOperations::save_requests() const {
  absl::MutexLock lock(&mutex_);
  return save_requests_;
}

std::vector<v1::SubmitJobRequest> FakeOperations::submit_requests() const {
  absl::MutexLock lock(&mutex_);
  return submit_requests_;
}

template <typename Response>
grpc::Status FakeOperations::Play(const std::vector<Response>& answers, size_t call,
                                  Response* response) const {
  if (answers_.away.contains(call)) return {grpc::StatusCode::UNAVAILABLE, "nobody is there"};
  const auto unanswered = std::distance(answers_.away.begin(), answers_.away.lower_bound(call));
  *response = answers[std::min(call - static_cast<size_t>(unanswered), answers.size() - 1)];
  return grpc::Status::OK;
}

grpc::Status FakeOperations::DrainNode(grpc::ServerContext*, const v1::DrainNodeRequest* request,
                                       v1::DrainNodeResponse* response) {
  if (request->node_id() != "server-1") {
    return {grpc::StatusCode::NOT_FOUND, "no node " + request->node_id()};
  }
  size_t call = 0;
  {
    absl::MutexLock lock(&mutex_);
    call = drain_requests_.size();
    drain_requests_.push_back(*request);
  }
  answers_.on_drain();
  return Play(answers_.drains, call, response);
}

grpc::Status FakeOperations::SaveCheckpoint(grpc::ServerContext*,
                                            const v1::SaveCheckpointRequest* request,
                                            v1::SaveCheckpointResponse* response) {
  absl::MutexLock lock(&mutex_);
  const size_t call = save_requests_.size();
  save_requests_.push_back(*request);
  return Play(answers_.saved, call, response);
}

grpc::Status FakeOperations::SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest* request,
                                       v1::SubmitJobResponse* response) {
  size_t call = 0;
  {
    absl::MutexLock lock(&mutex_);
    call = submit_requests_.size();
    submit_requests_.push_back(*request);
  }
  answers_.on_submit();
  v1::SubmitJobResponse answer;
  answer.set_job_id("a-2");
  return Play<v1::SubmitJobResponse>({answer}, call, response);
}

}  // namespace capstan::cli
