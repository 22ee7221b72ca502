#include "tests/benchmark/baseline/zmq_fleet.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/at_once.h"
#include "tests/benchmark/processor_time.h"

namespace capstan::benchmark {

absl::Status ZmqFleet::Start(const std::string& program, const std::string& folder) {
  std::vector<int> ports;
  for (int i = 0; i < server_count_; ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(auto server, PeerProcess::Start(program, "zmq", folder));
    ports.push_back(server->port());
    servers_.push_back(std::move(server));
  }
  for (int i = 0; i < worker_count_; ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(auto zmq, ZmqWorker::Connect(ports));
    workers_.push_back({std::move(zmq), std::vector<float>(gradient_.size())});
  }
  return absl::OkStatus();
}

absl::Status ZmqFleet::Run(int iterations) {
  CAPSTAN_RETURN_IF_ERROR(
      RunAtOnce(workers_.size(), [&](size_t i) { return RunWorker(workers_[i], iterations); }));
  pushes_ += iterations * worker_count_;
  return absl::OkStatus();
}

double ZmqFleet::Processor() const {
  double seconds = ProcessorSeconds();
  for (const auto& server : servers_) seconds += server->ProcessorSeconds();
  return seconds;
}

absl::Status ZmqFleet::CheckSums() {
  CAPSTAN_RETURN_IF_ERROR(RunWorker(workers_[0], 1));
  const auto times = static_cast<float>(++pushes_);
  for (size_t i = 0; i < gradient_.size(); ++i) {
    if (workers_[0].values[i] == times * gradient_[i]) continue;
    return absl::InternalError(absl::StrCat("ZeroMQ: element ", i, " is ", workers_[0].values[i],
                                            ", expected ", times * gradient_[i]));
  }
  return absl::OkStatus();
}

absl::Status ZmqFleet::RunWorker(Worker& one, int iterations) const {
  for (int i = 0; i < iterations; ++i) {
    CAPSTAN_RETURN_IF_ERROR(one.zmq->PushPull(tensors_, gradient_, absl::MakeSpan(one.values)));
  }
  return absl::OkStatus();
}

}  // namespace capstan::benchmark
