// SimTransport: how a simulated task's pushes and pulls reach one server: in frames over the
// simulated network, as over a data connection.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_TRANSPORT_H_
#define CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_TRANSPORT_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/types/ids.h"
#include "tests/simulation/network/sim_network.h"
#include "tests/simulation/world/world.h"
#include "worker/client/transport/transport.h"
#include "worker/core/push_pull_session.h"

namespace capstan::sim {

class SimTransport final : public worker::Transport {
 public:
  // `self` is the task's end of the network; `address` the server's. The world outlives it.
  SimTransport(World* world, SimNetwork::EndpointId self, std::string address)
      : world_(world), self_(self), address_(std::move(address)) {}

  std::shared_ptr<worker::Transfer> NewTransfer(worker::OpKind kind) override;
  void AskRouting(const JobId& job, absl::Duration timeout, RoutingDone done) override;

 private:
  World* const world_;
  const SimNetwork::EndpointId self_;
  const std::string address_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_TRANSPORT_H_
