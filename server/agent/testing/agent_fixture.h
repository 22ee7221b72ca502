// TestAgent: a ServerAgent without a network, with checkpoints and logs in memory; and assignments
// that a scheduler may send it. Thread safety: as ServerAgent.
#ifndef CAPSTAN_SERVER_AGENT_TESTING_AGENT_FIXTURE_H_
#define CAPSTAN_SERVER_AGENT_TESTING_AGENT_FIXTURE_H_

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "server/agent/server_agent.h"
#include "server/engine/testing/job_fixture.h"

namespace capstan::server {

// Job "lenet-1": both shards of the test table on incarnation `incarnation` of server-1, a third
// elsewhere.
inline v1::TableAssignment Assignment(uint64_t incarnation = 1) {
  v1::TableAssignment assignment;
  assignment.set_job_id("lenet-1");
  *assignment.add_tables() = TestTable();
  assignment.mutable_optimizer()->set_learning_rate(1.0f);
  assignment.mutable_optimizer()->mutable_sgd();
  assignment.set_slots(2);
  v1::RoutingTable* routing = assignment.mutable_routing();
  routing->set_job_id("lenet-1");
  routing->set_generation(1);
  for (const char* name : {"server-1", "server-2"}) {
    v1::ServerAddress* server = routing->add_servers();
    server->set_node_id(name);
    server->set_incarnation(incarnation);
  }
  int64_t begin = 0;
  for (int shard = 0; shard < 3; ++shard) {
    v1::ShardRoute* route = routing->add_shards();
    route->set_shard(shard);
    route->set_element_begin(begin);
    route->set_element_end(begin += 8);
    route->set_server(shard < 2 ? 0 : 1);
  }
  assignment.mutable_membership()->set_generation(1);
  v1::Member* member = assignment.mutable_membership()->add_members();  // The worker that pushes.
  member->set_incarnation(1);
  member->set_active(true);
  return assignment;
}

inline v1::SyncNodeResponse Desired(const std::optional<v1::TableAssignment>& assignment) {
  v1::SyncNodeResponse desired;
  if (assignment.has_value()) *desired.add_tables() = *assignment;
  return desired;
}

// Checkpoints and logs in memory: one number a shard.
class MemorySource final : public TableSource, public CheckpointSink, public RecordSink {
 public:
  absl::StatusOr<v1::ShardSnapshot> FromCheckpoint(const std::string& folder,
                                                   const ShardKey& shard) override {
    if (on_read) on_read();
    if (!read_failure.ok()) return read_failure;
    if (checkpoints.contains({folder, shard})) return checkpoints.at({folder, shard});
    return absl::NotFoundError(folder + ": no such checkpoint");
  }
  absl::Status FromLog(const JobId&, const ShardKey& shard, ShardReader& reader) override {
    if (!logs.contains(shard)) return absl::NotFoundError("the log does not hold it");
    const Log& log = logs.at(shard);
    absl::Status status = reader.Install(*log.base);
    for (const auto& record : log.records) status.Update(reader.Replay(*record));
    return status;
  }
  void Write(const JobId&, const v1::CheckpointOrder& order, std::vector<CapturedShard> shards,
             Done done) override {
    for (const CapturedShard& each : shards) {
      checkpoints[{order.folder(), each.shard.key}] = *each.snapshot;
    }
    written = std::move(done);
  }
  void Begin(const JobId&, const ShardKey& shard, Term,
             std::shared_ptr<const v1::ShardSnapshot> snapshot,
             std::shared_ptr<CapturedRows> rows) override {
    REQUIRE(rows == nullptr);  // Dense shards alone.
    logs[shard] = {snapshot, {}};
  }
  void Append(const JobId&, const ShardKey& shard, Term,
              std::shared_ptr<const v1::ShardRecord> record) override {
    logs.at(shard).records.push_back(std::move(record));
  }
  void Continue(const JobId&, const ShardKey&, Term, Position) override {}
  void KeepRecord(const JobId& job, const std::string& record) override {
    records.push_back(job + " " + record);
  }
  void Identify(const JobId& job, const std::string& unique_id) override {
    identified[job] = unique_id;
  }
  void Forget(const JobId&, const ShardKey& shard) override { logs.erase(shard); }
  void ForgetJob(const JobId&) override { logs.clear(); }

  struct Log {
    std::shared_ptr<const v1::ShardSnapshot> base;
    std::vector<std::shared_ptr<const v1::ShardRecord>> records;
  };
  std::map<std::pair<std::string, ShardKey>, v1::ShardSnapshot> checkpoints;
  std::map<ShardKey, Log> logs;
  std::vector<std::string> records;  // "<job> <record>" of each that was to be kept.
  std::map<JobId, std::string> identified;
  std::function<void()> on_read;  // Before each part of a checkpoint.
  absl::Status read_failure;      // If not OK, no part of a checkpoint can be read.
  Done written;
};

// An agent of "server-1" whose orders run at once, or on threads of its own.
class TestAgent {
 public:
  enum class Orders { kAtOnce, kOnThreads };
  explicit TestAgent(Orders orders = Orders::kAtOnce) : agent(Options(orders)) {
    agent.Restarted("server-1", Incarnation(1));
    agent.Start();
  }

  v1::TableState Take(const v1::TableAssignment& assignment) {
    agent.TakeDesired(Desired(assignment));
    return State();
  }
  v1::TableState State(const JobId& job = "lenet-1") {
    v1::SyncNodeRequest request;
    agent.FillState(request);
    for (const v1::TableState& state : request.tables()) {
      if (state.job_id() == job) return state;
    }
    FAIL("nothing is reported of " << job);
    return {};
  }
  // Waits for changes until the state satisfies `matches`, and returns it.
  template <typename Predicate>
  v1::TableState Await(const JobId& job, const Predicate& matches) {
    for (;;) {
      const int seen = changes;
      v1::TableState state = State(job);
      if (matches(state)) return state;
      changes.wait(seen);
    }
  }
  HeldJob& job() {
    REQUIRE_OK_AND_ASSIGN(const auto job, jobs.Find("lenet-1"));
    return *job;  // `jobs` owns it too.
  }
  float value(uint64_t generation) {
    v1::PullRequest request = SnapshotOf();
    request.mutable_caller()->set_routing_generation(generation);
    PullAnswer response;
    absl::Status ended = absl::UnknownError("waits");
    job().calls().Pull(request, &response, [&](const absl::Status& status) { ended = status; });
    REQUIRE_OK(ended);
    return NumberIn(response);
  }
  void Push(uint64_t generation, uint64_t sequence) {
    v1::PushRequest request = PushOf(0, 0, -1, 1.0f, sequence);
    request.mutable_caller()->set_routing_generation(generation);
    v1::PushResponse response;
    job().calls().Push(Detach(request), &response, [](const absl::Status&) {});
  }

  ManualClock clock;
  MemorySource memory;
  HeldJobs jobs;
  std::atomic<int> changes = 0;
  ServerAgent agent;

 private:
  ServerAgent::Options Options(Orders orders) {
    ServerAgent::Options options;
    options.jobs = &jobs;
    options.clock = &clock;
    options.log = &memory;
    options.source = &memory;
    options.checkpoints = &memory;
    options.on_change = [this] {
      ++changes;
      changes.notify_all();
    };
    if (orders == Orders::kAtOnce) options.execute = [](const auto& work) { work(); };
    return options;
  }
};

// ASP on the two shards of the test table, both on server-1.
inline v1::TableAssignment Whole(uint64_t generation, uint64_t term, const JobId& job = "lenet-1") {
  v1::TableAssignment assignment = Assignment();
  assignment.mutable_consistency()->mutable_asp();
  *assignment.mutable_routing() = TestRouting(generation, "server-1", term);
  assignment.set_job_id(job);
  assignment.mutable_routing()->set_job_id(job);
  return assignment;
}

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_AGENT_TESTING_AGENT_FIXTURE_H_
