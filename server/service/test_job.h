// A small job for tests of the service: one table of 24 zeros in two shards, updated by value -=
// gradient.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_SERVICE_TEST_JOB_H_
#define CAPSTAN_SERVER_SERVICE_TEST_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/time/clock.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "server/core/consistency_policy.h"
#include "server/service/held_job.h"

namespace capstan::server {

inline constexpr int64_t kTestShardElements[] = {16, 8};  // Shards 0 and 1 of table 0.

v1::TableSpec TestTable();

struct TestJobOptions {
  ConsistencyConfig consistency;
  OptimizerKind optimizer = OptimizerKind::kSgd;  // Of learning rate 1.
  NodeId node = "server-1";
  uint64_t incarnation = 1;
  bool safe_replies = false;
  const Clock* clock = nullptr;  // Null: one that stands at Instant().
  ReplicaTransport* transport = nullptr;
  RecordSink* log = nullptr;
  std::function<void(Instant)> schedule_tick;
  std::function<void()> on_report;
};
// Job "lenet-1", without routing.
std::shared_ptr<HeldJob> MakeEmptyTestJob(const TestJobOptions& options);
// Both shards on the first server ("server-1", life 1), or on `primary`, of that term.
v1::RoutingTable TestRouting(uint64_t generation, const NodeId& primary = "server-1",
                             uint64_t term = 1);
// Names a copy of both shards.
void AddReplica(v1::RoutingTable* routing, const NodeId& node, bool in_sync);
// Takes the table in, with shards of term 1 at their initial values.
void TakeRouting(HeldJob& job, const v1::RoutingTable& routing);

// The job at routing generation 1.
std::shared_ptr<HeldJob> MakeTestJob(const TestJobOptions& options);
std::shared_ptr<HeldJob> MakeTestJob(const ConsistencyConfig& consistency);

v1::Caller CallerOf(int32_t rank, uint64_t incarnation);
// A push of both shards, every element `gradient`. BSP: give a slot. SSP, ASP: slot -1 and a
// sequence.
v1::PushRequest PushOf(int32_t rank, int64_t iteration, int32_t slot, float gradient,
                       uint64_t sequence = 1);
// A pull of both shards.
v1::PullRequest PullOf(int32_t rank, int64_t iteration, int32_t wait_limit_ms);
v1::PullRequest SnapshotOf();

// The one number that all elements of the answer have; fails the test if they differ or are too
// few.
float NumberIn(const v1::PullResponse& response);
float NumberIn(PullAnswer answer);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_SERVICE_TEST_JOB_H_
