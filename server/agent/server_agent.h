// ServerAgent: makes and drops tables as the scheduler wishes; the server's half of a NodeAgent.
//
// Tables are made by a thread of its own, as initial values take a while and the lease must be
// kept.
//
//              TakeDesired (new)        made                     TakeDesired (generations)
//   (unknown) ------------------> MAKING ----> HELD, reported --+------> HELD
//                                    |                          '------> FAILED: unknown shards
//                                    '--cannot be made--> FAILED, reported
//   any --TakeDesired without the job, or a new life--> dropped; its waiting calls end
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
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "server/service/held_jobs.h"

namespace capstan::server {

class ServerAgent final : public NodeHandler {
 public:
  // `jobs` outlives the agent, which alone adds to it. `on_change` is called when the state to
  // report has changed (NodeAgent::Wake), by the maker's thread.
  ServerAgent(HeldJobs* jobs, std::function<void()> on_change);
  ~ServerAgent() override;  // Stops.

  void Start();
  void Stop();  // Lets the tables in the making be finished. Idempotent.

  void Restarted(const NodeId& node_id, Incarnation incarnation) override;
  void FillState(v1::SyncNodeRequest& request) override;
  void TakeDesired(const v1::SyncNodeResponse& response) override;

 private:
  enum class Stage { kMaking, kHeld, kFailed };
  struct Entry {
    uint64_t id = 0;  // Tells apart two entries of one job: it was dropped and assigned again.
    v1::TableAssignment desired;
    Stage stage = Stage::kMaking;
    absl::Status failure;  // kFailed.
  };
  struct Order {
    JobId job;
    uint64_t id = 0;
  };

  void RunMaker();
  void Make(const Order& order);
  void AssignNew(const v1::TableAssignment& desired) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Applies generations to a job that is held.
  void Apply(const v1::TableAssignment& desired, HeldJob& job, Entry& entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(Entry& entry, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The shards of the routing table that this life of this node holds.
  std::vector<HeldShard> OwnShards(const v1::RoutingTable& routing) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  HeldJobs* const jobs_;
  const std::function<void()> on_change_;

  absl::Mutex mutex_;
  absl::CondVar ordered_;
  NodeId node_id_ ABSL_GUARDED_BY(mutex_);
  Incarnation incarnation_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<JobId, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::deque<Order> orders_ ABSL_GUARDED_BY(mutex_);  // At most one an entry.
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread maker_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_AGENT_SERVER_AGENT_H_
