// SimSnapshotReader: a process that opens snapshots of the job, one after the other, and reads each
// for a while, as one that serves its model does: rows by key, buckets in pieces, dense values.
//
// Every answer is held against what its server had when the moment was kept; under BSP every shard
// is of the iteration that the scheduler has told. It closes some snapshots, and vanishes from
// others. It writes nothing. Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_READERS_SIM_SNAPSHOT_READER_H_
#define CAPSTAN_TESTS_SIMULATION_READERS_SIM_SNAPSHOT_READER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "proto/snapshot.pb.h"
#include "tests/simulation/network/prng.h"
#include "tests/simulation/network/process.h"
#include "tests/simulation/network/sim_network.h"
#include "tests/simulation/world/world.h"

namespace capstan::sim {

class SimSnapshotReader {
 public:
  SimSnapshotReader(World* world, JobWorld* job, SimNetwork::HostId host, HostClock* clock);

  Process& process() { return process_; }
  SimNetwork::HostId host() const { return host_; }
  void Start();

 private:
  void OpenLater();
  void Open();
  void OnOpened(const absl::Status& status, const std::string& answer);
  void ReadLater();
  void Read();  // Some of one shard; renews the others' leases.
  v1::ReadSnapshotRequest Question(const v1::ShardRoute& route);
  void Ask(const v1::ShardRoute& route, v1::ReadSnapshotRequest request);
  void OnRead(int server, const v1::ReadSnapshotRequest& request, const absl::Status& status,
              const std::string& answer);
  void Leave();  // The present one.
  SimNetwork::EndpointId EndpointOf(const v1::ShardRoute& route) const;

  World* const world_;
  JobWorld* const job_;  // The job that it reads.
  const SimNetwork::HostId host_;
  Prng prng_;
  Process process_;
  const SimNetwork::EndpointId endpoint_;
  uint64_t reader_ = 0;              // Its name; another one for each snapshot.
  v1::OpenSnapshotResponse opened_;  // Id 0: none is open.
  int64_t reads_left_ = 0;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_READERS_SIM_SNAPSHOT_READER_H_
