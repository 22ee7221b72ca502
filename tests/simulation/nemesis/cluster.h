// Cluster: the processes of one simulated world: a scheduler, servers, worker daemons, each on a
// host of its own with its own clock; on the last worker's, maybe readers.
//
// Hosts: 0 the scheduler's, then the servers', then the workers'. Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_NEMESIS_CLUSTER_H_
#define CAPSTAN_TESTS_SIMULATION_NEMESIS_CLUSTER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/network/process.h"
#include "tests/simulation/readers/sim_reader.h"
#include "tests/simulation/readers/sim_snapshot_reader.h"
#include "tests/simulation/shells/sim_scheduler.h"
#include "tests/simulation/shells/sim_server.h"
#include "tests/simulation/shells/sim_worker.h"
#include "tests/simulation/world/world.h"

namespace capstan::sim {

class Cluster {
 public:
  explicit Cluster(World* world);

  void Start();  // All processes.
  // Starts a second process of the server's name on that host, on an empty disk or a copy of the
  // server's. The cluster keeps it, and it is none of servers().
  SimServer* StartTwice(const SimServer& server, int host, bool copy_disk);

  int hosts() const { return static_cast<int>(clocks_.size()); }
  HostClock& clock(int host) { return *clocks_[static_cast<size_t>(host)]; }
  void ClockJumped(int host);  // The timers of the host's processes are due earlier.

  SimScheduler& scheduler() { return *scheduler_; }
  // Since when a process of that name runs. Nothing: none does, or two that have had the name.
  std::optional<Instant> AliveSince(const std::string& node);
  std::vector<std::unique_ptr<SimServer>>& servers() { return servers_; }
  std::vector<std::unique_ptr<SimWorker>>& workers() { return workers_; }
  SimReader* reader() { return reader_.get(); }  // Null: there is none.

 private:
  World* const world_;
  std::vector<std::unique_ptr<HostClock>> clocks_;  // Keyed by host.
  std::unique_ptr<SimScheduler> scheduler_;
  std::vector<std::unique_ptr<SimServer>> servers_;
  std::vector<std::unique_ptr<SimServer>> copies_;  // The second of two under one name.
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::unique_ptr<SimReader> reader_;                   // Null: there is none.
  std::unique_ptr<SimSnapshotReader> snapshot_reader_;  // Null: there is none.
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_NEMESIS_CLUSTER_H_
