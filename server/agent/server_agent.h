// ServerAgent: makes, promotes, fills and drops shards as the scheduler wishes; the server's half
// of a NodeAgent.
//
// Shards are made by a thread of its own (or the given executor), as initial values and restores
// take a while and the lease must be kept. A routing table is taken in once its shards are made.
//
//              TakeDesired (new)        made                     TakeDesired (generations)
//   (unknown) ------------------> MAKING ----> HELD, reported --+------> HELD, or MAKING MORE
//                                    |                          '------> FAILED: unknown shards
//                                    '--cannot be made--> FAILED, reported
//   any --TakeDesired without the job, or a new life--> dropped; its waiting calls end
//
//   checkpoint: TakeDesired(order) --> captured in memory, reported --> written, reported
//                                                                  '--> failed, reported
//
// Thread safety: thread-safe, except that Start and Stop are one thread's.
#ifndef CAPSTAN_SERVER_AGENT_SERVER_AGENT_H_
#define CAPSTAN_SERVER_AGENT_SERVER_AGENT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/net/node_agent.h"
#include "common/time/clock.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "server/agent/table_source.h"
#include "server/service/held_jobs.h"
#include "server/service/record_sink.h"
#include "server/service/replica_transport.h"

namespace capstan::server {

class ServerAgent final : public NodeHandler {
 public:
  // All that is pointed to outlives the agent and the jobs it makes.
  struct Options {
    HeldJobs* jobs = nullptr;  // The agent alone adds to it.
    const Clock* clock = nullptr;
    ReplicaTransport* transport = nullptr;
    RecordSink* log = nullptr;              // Null: jobs that ask for a log are refused.
    TableSource* source = nullptr;          // Null: nothing can be restored.
    CheckpointSink* checkpoints = nullptr;  // Null: checkpoints fail.
    // The state to report has changed (NodeAgent::Wake). Called from any thread, under no lock.
    std::function<void()> on_change;
    std::function<void(Instant)> schedule_tick;  // As HeldJob's.
    // Runs what takes long, in order, never before it has returned or right away: both will do.
    // Null: a thread of the agent's own.
    std::function<void(std::function<void()>)> execute;
  };

  explicit ServerAgent(Options options);
  ~ServerAgent() override;  // Stops.

  void Start();
  void Stop();  // Lets the shards in the making be finished. Idempotent.

  void Restarted(const NodeId& node_id, Incarnation incarnation) override;
  void FillState(v1::SyncNodeRequest& request) override;
  void SyncAnswered(absl::Duration read_lease) override;
  void TakeDesired(const v1::SyncNodeResponse& response) override;

 private:
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_AGENT_SERVER_AGENT_H_
