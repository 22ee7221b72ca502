// SimAgent: the event-driven twin of common/net/node_agent.h: a simulated daemon's tie to the
// scheduler. The states and times are those of NodeAgent; the thread is a Process's timers.
//
// Thread safety: thread-compatible. Lives at most as long as the process's life that made it.
#ifndef CAPSTAN_TESTS_SIMULATION_SIM_AGENT_H_
#define CAPSTAN_TESTS_SIMULATION_SIM_AGENT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/net/node_agent.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "tests/simulation/process.h"
#include "tests/simulation/sim_network.h"

namespace capstan::sim {

class SimAgent {
 public:
  // All pointers outlive the agent.
  SimAgent(SimNetwork* network, Process* process, SimNetwork::EndpointId self,
           SimNetwork::EndpointId scheduler, v1::RegisterRequest registration,
           NodeHandler* handler);

  void Start() { Run(); }
  void Wake();  // Syncs at once; a sync that the scheduler holds is cancelled.

  bool registered() const { return incarnation_.value() != 0; }
  // Not empty: the scheduler refuses this node for good.
  const absl::Status& fatal() const { return fatal_; }

 private:
  void Run();
  void Register();
  void OnRegistered(const absl::Status& status, const std::string& answer);
  void Sync();
  void OnSynced(const absl::Status& status, const std::string& answer);
  void EndLife();
  void BackOff();
  void Fatal(const absl::Status& status) { fatal_ = status; }

  SimNetwork* const network_;
  Process* const process_;
  const SimNetwork::EndpointId self_;
  const SimNetwork::EndpointId scheduler_;
  const v1::RegisterRequest registration_;
  NodeHandler* const handler_;

  NodeId node_id_;
  Incarnation incarnation_;
  uint64_t generation_seen_ = 0;
  Instant life_began_;
  Instant sync_sent_;
  absl::Duration sync_timeout_;
  absl::Duration read_lease_;
  absl::Duration backoff_;
  SimNetwork::CallId sync_call_ = 0;  // In flight; 0: none.
  Process::TimerId pause_ = 0;        // A pause that Wake ends; 0: none.
  bool syncing_ = false;              // Inside Sync: a Wake is remembered.
  bool woken_ = false;
  absl::Status fatal_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_SIM_AGENT_H_
