// SimServer: a parameter server's process: the real HeldJobs and ServerAgent under a SimAgent.
//
// The shell of parameter_service.h without gRPC and threads. Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_SIM_SERVER_H_
#define CAPSTAN_TESTS_SIMULATION_SIM_SERVER_H_

#include <memory>
#include <string>

#include "server/agent/server_agent.h"
#include "server/service/held_jobs.h"
#include "tests/simulation/process.h"
#include "tests/simulation/sim_agent.h"
#include "tests/simulation/sim_network.h"
#include "tests/simulation/world.h"

namespace capstan::sim {

class SimServer {
 public:
  SimServer(World* world, SimNetwork::HostId host, HostClock* clock, std::string name);

  Process& process() { return process_; }
  void Start();  // REQUIRES: it is dead.

 private:
  using Call = std::shared_ptr<SimNetwork::Incoming>;

  void Handle(const Call& call);
  absl::Status Push(const Call& call);
  absl::Status Pull(const Call& call);
  void Arm();

  World* const world_;
  Process process_;
  const SimNetwork::EndpointId endpoint_;

  // Of this life.
  std::unique_ptr<server::HeldJobs> jobs_;
  std::unique_ptr<server::ServerAgent> server_agent_;
  std::unique_ptr<SimAgent> agent_;
  Process::TimerId timer_ = 0;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_SIM_SERVER_H_
