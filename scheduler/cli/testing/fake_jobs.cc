#include "scheduler/cli/testing/fake_jobs.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "common/testing/status_matchers.h"

namespace capstan::cli {

FakeJobs::FakeJobs(std::vector<v1::JobStatus> statuses, std::function<void(int call)> on_call)
    : statuses_(std::move(statuses)), on_call_(std::move(on_call)) {
  REQUIRE_OK_AND_ASSIGN(server_, GrpcServer::Start({.services = {this}}));
}

std::vector<std::string> FakeJobs::stopped() const {
  absl::MutexLock lock(&mutex_);
  return stopped_;
}

std::vector<v1::GetJobRequest> FakeJobs::requests() const {
  absl::MutexLock lock(&mutex_);
  return requests_;
}

grpc::Status FakeJobs::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                              v1::GetJobResponse* response) {
  size_t call = 0;
  {
    absl::MutexLock lock(&mutex_);
    call = requests_.size();
    requests_.push_back(*request);
  }
  on_call_(static_cast<int>(call));
  const v1::JobStatus& status = statuses_[std::min(call, statuses_.size() - 1)];
  if (status.job_id() != request->job_id()) {
    return {grpc::StatusCode::NOT_FOUND, "no job " + request->job_id()};
  }
  *response->mutable_status() = status;
  return grpc::Status::OK;
}

grpc::Status FakeJobs::StopJob(grpc::ServerContext*, const v1::StopJobRequest* request,
                               v1::StopJobResponse* response) {
  absl::MutexLock lock(&mutex_);
  stopped_.push_back(request->job_id());
  response->set_state(v1::STOPPED);
  return grpc::Status::OK;
}

}  // namespace capstan::cli
