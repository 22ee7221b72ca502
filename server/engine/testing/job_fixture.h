// A small job for tests of the service: one table of 24 zeros in two shards, updated by value -=
// gradient; where it is asked for, also a sparse one, whose rows are zeros at first.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_ENGINE_TESTING_JOB_FIXTURE_H_
#define CAPSTAN_SERVER_ENGINE_TESTING_JOB_FIXTURE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/security/capability.h"
#include "common/time/clock.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "server/core/consistency/consistency_policy.h"
#include "server/engine/job/held_job.h"
#include "server/store/memory_budget.h"
#include "server/store/row_disk.h"

namespace capstan::server {

inline constexpr int64_t kTestShardElements[] = {16, 8};  // Shards 0 and 1 of table 0.

inline constexpr int32_t kTestDim = 2;

v1::TableSpec TestTable();
v1::TableSpec TestSparseTable(int32_t buckets);

struct TestJobOptions {
  ConsistencyRule consistency;
  OptimizerKind optimizer = OptimizerKind::kSgd;  // Its learning rate is 1.
  int32_t buckets = 0;                            // Above 0: there is table 1, of rows of kTestDim.
  int64_t memory_bytes = 0;  // Limit of table 1; beyond it rows are on `disks`.
  RowDisks* disks = nullptr;
  std::shared_ptr<MemoryBudget> budget;  // Null: no limit.
  SnapshotLeases::Limits snapshots;
  std::string unique_id;
  NodeId node = "server-1";
  uint64_t incarnation = 1;
  std::optional<CapabilityKey> capability_key = {};
  bool safe_replies = false;
  const Clock* clock = nullptr;  // Null: one that stands at Instant().
  ReplicaTransport* transport = nullptr;
  RecordSink* log = nullptr;
  int64_t log_snapshot_bytes_max = ShardLink::kLogSnapshotBytesMax;
  std::function<void(Instant)> schedule_tick;
  std::function<void()> on_report;
};
// Job "lenet-1", without routing.
std::shared_ptr<HeldJob> MakeEmptyTestJob(const TestJobOptions& options);
// Both shards on the first server ("server-1", incarnation 1), or on `primary`, in term `term`.
v1::RoutingTable TestRouting(uint64_t generation, const NodeId& primary = "server-1",
                             uint64_t term = 1);
// Names the buckets of table 1 as well, on the first server and of the other shards' term.
void AddBuckets(v1::RoutingTable* routing, int32_t buckets);
// Names a copy of all shards.
void AddReplica(v1::RoutingTable* routing, const NodeId& node, bool in_sync);
// Applies the table. Shards that must be made, whatever their source, get their initial values.
void TakeRouting(HeldJob& job, const v1::RoutingTable& routing, const ShardSources& sources = {});

// The job at routing generation 1.
std::shared_ptr<HeldJob> MakeTestJob(const TestJobOptions& options);
std::shared_ptr<HeldJob> MakeTestJob(const ConsistencyRule& consistency);

v1::Caller CallerOf(int32_t rank, uint64_t incarnation);
// A push of both shards, every element `gradient`. BSP: give a slot. SSP, ASP: slot -1 and a
// sequence.
v1::PushRequest PushOf(int32_t rank, int64_t iteration, int32_t slot, float gradient,
                       uint64_t sequence = 1);
// A pull of rows of table 1, from all buckets that have one of `keys`.
v1::PullRequest RowPullOf(int32_t rank, int32_t buckets, const std::vector<uint64_t>& keys);
// ASP: a push of rows of table 1, every element `gradient`, to all buckets that have one of `keys`.
v1::PushRequest RowPushOf(int32_t rank, int32_t buckets, const std::vector<uint64_t>& keys,
                          float gradient, uint64_t sequence = 1);
// A reader's scan of one bucket of table 1.
v1::ScanRowsRequest ScanOf(int32_t bucket, uint64_t place = 0, int32_t bytes_max = 1 << 20);
// A pull of both shards.
v1::PullRequest PullOf(int32_t rank, int64_t iteration, int32_t wait_limit_ms);
v1::PullRequest SnapshotOf();

// The one number that all elements of the answer have; fails the test if they differ or are too
// few.
float NumberIn(const v1::PullResponse& response);
float NumberIn(PullAnswer answer);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_TESTING_JOB_FIXTURE_H_
