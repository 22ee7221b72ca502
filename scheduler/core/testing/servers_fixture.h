// ServersFixture: a job on servers that die, come back, join and are drained, driven by a test.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_TESTING_SERVERS_FIXTURE_H_
#define CAPSTAN_SCHEDULER_CORE_TESTING_SERVERS_FIXTURE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/job/job_run.h"
#include "scheduler/core/job/views.h"

namespace capstan::scheduler {

// An SSP job of one task, by default on three servers.
struct ServersFixture {
  enum class Tables { kNotMade, kMade, kTrained };
  explicit ServersFixture(int replicas, bool log = false, int server_count = 3,
                          Tables tables = Tables::kTrained);

  ServerRef NextIncarnation(int number);
  void Send(bool idle = false);
  const Assignment& Of() const;
  // Servers apply the newest state and, once a table is applied, have filled its replicas.
  void ApplyAll();
  void Apply(const NodeId& name);
  void Kill(const std::vector<NodeId>& names, absl::Duration fence = absl::ZeroDuration());
  // A new process of that name, with a log of these shards of table 0.
  void Start(int number, const std::vector<int>& logged = {},
             const std::string& unique_id = "cc-1");
  void Pass(absl::Duration step);
  std::vector<int> ShardsOf(const NodeId& name) const;
  const ServerRef& Primary(const ShardRoute& route) const;
  JobView View() const;

  JobPlan plan;
  int64_t samples = 0;     // Samples that the task has trained.
  bool logs_begun = true;  // The value in reports of servers that have applied a table.
  uint64_t incarnation = 0;
  std::map<NodeId, ServerRef> servers;
  std::map<NodeId, Incarnation> written_by;  // The incarnation that wrote each server's log.
  Instant now = Instant::FromOrigin(absl::Seconds(100));
  Events events;
  std::unique_ptr<JobRun> run;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_TESTING_SERVERS_FIXTURE_H_
