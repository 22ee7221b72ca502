// SimReader: a process that follows a job with snapshot pulls, as one that serves its model does.
//
// It is no task: it reads with rank -1, every now and then, each shard by itself from the primary
// of the routing table that it knows, and asks any server for a table when it is refused or not
// answered. Nobody tells it of a change: it goes on reading from a primary that was cut off with
// it, as long as that one answers. It writes nothing; what it reads goes to the checkers.
//
// It ends for good when the job goes back to a checkpoint: from then on a server that is cut off
// may still show the timeline that was lost, and a reader with a table of that timeline could not
// tell.
// Thread safety: thread-compatible. Invariant: at most one pull of a shard is in flight.
#ifndef CAPSTAN_TESTS_SIMULATION_READERS_SIM_READER_H_
#define CAPSTAN_TESTS_SIMULATION_READERS_SIM_READER_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/parameter_server.pb.h"
#include "tests/simulation/network/prng.h"
#include "tests/simulation/network/process.h"
#include "tests/simulation/network/sim_network.h"
#include "tests/simulation/world/world.h"

namespace capstan::sim {

class SimReader {
 public:
  // `servers`: whom it asks for a routing table.
  SimReader(World* world, JobWorld* job, SimNetwork::HostId host, HostClock* clock,
            std::vector<SimNetwork::EndpointId> servers);

  Process& process() { return process_; }
  SimNetwork::HostId host() const { return host_; }
  void Start();
  void ReadAll();  // Each shard once, unless it is being read. REQUIRES: it has started.

 private:
  void LookLater();
  void Look();
  void Read(const v1::ShardRoute& route);
  void OnAnswer(const ShardKey& shard, const absl::Status& status, const std::string& answer);
  void AskRouting();

  World* const world_;
  JobWorld* const job_;  // The job that it reads.
  const SimNetwork::HostId host_;
  const std::vector<SimNetwork::EndpointId> servers_;
  const TaskKey task_key_;
  Prng prng_;
  Process process_;
  const SimNetwork::EndpointId endpoint_;
  v1::RoutingTable routing_;
  std::set<ShardKey> reading_;  // Reads in flight.
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_READERS_SIM_READER_H_
