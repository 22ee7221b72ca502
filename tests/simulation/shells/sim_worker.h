// SimWorker: a worker daemon's process and the task processes that it starts: the real TaskTable
// under a SimAgent.
//
// The shell of worker/daemon/task_supervisor.h without files and child processes. A daemon that is
// killed takes its tasks along, as the kernel does for real ones. Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_WORKER_H_
#define CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_WORKER_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/net/node/node_registration.h"
#include "tests/simulation/network/process.h"
#include "tests/simulation/network/sim_network.h"
#include "tests/simulation/shells/sim_agent.h"
#include "tests/simulation/shells/sim_task.h"
#include "tests/simulation/world/world.h"
#include "worker/daemon/task_table.h"

namespace capstan::sim {

class SimWorker final : public NodeHandler {
 public:
  SimWorker(World* world, SimNetwork::HostId host, HostClock* clock, std::string name,
            int capacity);
  ~SimWorker();

  Process& process() { return process_; }
  void Start();  // REQUIRES: it is dead.
  // Acts as on SIGTERM: tells the scheduler, ends its tasks, reports that, ends. `ended` follows.
  // REQUIRES: it is alive.
  void Stop(std::function<void()> ended);
  // Processes of tasks that run now, oldest first.
  std::vector<Process*> TaskProcesses();
  void KillTask(Process* task);  // Ends it as signal 9 does; the daemon notices.
  void ClockJumped();

  // ---- NodeHandler
  void Restarted(const NodeId& node_id, Incarnation incarnation) override;
  void FillState(v1::SyncNodeRequest& request) override;
  void TakeDesired(const v1::SyncNodeResponse& response) override;

 private:
  struct TaskProcess {
    worker::ProcessId id;
    std::unique_ptr<Process> process;
    SimNetwork::EndpointId endpoint = 0;
    std::unique_ptr<SimTask> task;  // Null: not started yet, or ended.
  };

  void Perform(const worker::TaskActions& actions, const v1::SyncNodeResponse& response);
  void StartTask(worker::ProcessId id, const v1::TaskAssignment& assignment);
  void EndTask(TaskProcess& task);
  void Ended(worker::ProcessId id, int exit_code, int signal);
  void ReportEnds();
  TaskProcess* Find(worker::ProcessId id);

  World* const world_;
  const SimNetwork::HostId host_;
  HostClock* const clock_;
  const int capacity_;
  Process process_;
  const SimNetwork::EndpointId endpoint_;
  std::deque<TaskProcess> tasks_;  // All that ever ran: events may still name their processes.

  // The state of this process.
  worker::TaskTable table_;
  std::unique_ptr<SimAgent> agent_;
  std::function<void()> stopped_;  // Called when it has stopped. Null: it is not to stop.
  bool told_ = false;              // The scheduler knows that it stops.
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_WORKER_H_
