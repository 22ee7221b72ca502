// SimAgent: the event-driven shell of a simulated daemon's NodeRegistration; the real one is
// common/net/node/node_agent.h. Its thread is here a process's timers.
//
// Thread safety: thread-compatible. Lives at most as long as the process's incarnation that made
// it.
#ifndef CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_AGENT_H_
#define CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_AGENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/net/node/node_registration.h"
#include "proto/scheduler.pb.h"
#include "tests/simulation/network/process.h"
#include "tests/simulation/network/sim_network.h"
#include "tests/simulation/world/world.h"

namespace capstan::sim {

class SimAgent {
 public:
  // All pointers outlive the agent. A refusal for good is the world's failure; `on_name_taken`, if
  // there is one, is called instead where another daemon has the name.
  SimAgent(World* world, Process* process, SimNetwork::EndpointId self,
           v1::RegisterRequest registration, NodeHandler* handler,
           std::function<void()> on_name_taken = nullptr);

  bool registered() const { return registration_.registered(); }
  void Start() { Run(); }
  void Wake();  // Syncs at once; a sync that the scheduler holds is cancelled.
  // Tells the scheduler that this node goes. `done` is called once: with true when the scheduler
  // has answered a state that was read after this call, and, for kSafe, that nothing of a running
  // job is on this node now; with false when there is no incarnation to leave, or after `limit`.
  // The world's loop calls it, and it may kill the process. NodeAgent's are Leave (kTold) and
  // LeaveWhenSafe.
  enum class When { kTold, kSafe };
  void Leave(When when, absl::Duration limit, std::function<void(bool answered)> done);

 private:
  struct Leaving {
    When when;
    std::function<void(bool answered)> done;
  };

  void Run();
  void Register();
  void Sync();
  void KeepConnection();
  void Do(const NodeRegistration::Next& next);
  // Ends the call or pause that is on, so that Run comes next.
  void Interrupt();
  // Ends the waits up to this one for which the scheduler's answer is enough.
  void TellLeaving(uint64_t last, bool safe);
  void EndAllLeaving();
  void EndLeaving(uint64_t id, bool answered);

  World* const world_;
  Process* const process_;
  const SimNetwork::EndpointId self_;
  NodeRegistration registration_;

  SimNetwork::CallId call_ = 0;          // Register or SyncNode, in flight; 0: none.
  bool syncs_ = false;                   // It is a SyncNode.
  Process::TimerId pause_ = 0;           // The timer that a wake ends; 0: none.
  SimNetwork::CallId connection_ = 0;    // The HoldConnection call; 0: none.
  Incarnation connected_;                // Its incarnation.
  bool woken_ = false;                   // Since the last state was read.
  uint64_t leaves_ = 0;                  // Calls of Leave.
  std::map<uint64_t, Leaving> leaving_;  // Leaves that are not done, by number.
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_AGENT_H_
