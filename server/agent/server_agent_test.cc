#include "server/agent/server_agent.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/net/node/node_agent.h"
#include "common/net/testing/fake_scheduler.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "server/agent/testing/agent_fixture.h"
#include "server/engine/testing/job_fixture.h"

namespace capstan::server::server_agent_test {
namespace {

using absl::StatusCode;

// A server daemon without its data port, connected to a fake scheduler.
class Daemon {
 public:
  Daemon() : handler_(HandlerOptions()) {
    NodeAgent::Options options;
    options.scheduler = scheduler.address();
    options.self.set_role(v1::SERVER);
    options.self.set_name("server-1");
    options.self.set_address("127.0.0.1:4242");
    agent_ = std::make_unique<NodeAgent>(options, &handler_);
    handler_.Start();
    agent_->Start();
  }
  ~Daemon() {
    agent_->Stop();
    handler_.Stop();
  }

  // The next report about the job that satisfies `matches`.
  template <typename Predicate>
  v1::TableState Reported(const std::string& job, const Predicate& matches) {
    v1::TableState found;
    const auto report = scheduler.WaitForSync([&](const v1::SyncNodeRequest& request) {
      for (const v1::TableState& state : request.tables()) {
        if (state.job_id() != job || !matches(state)) continue;
        found = state;
        return true;
      }
      return false;
    });
    REQUIRE(report.has_value());
    return found;
  }

  HeldJobs& jobs() { return jobs_; }

  testing::FakeScheduler scheduler;

 private:
  ServerAgent::Options HandlerOptions() {
    ServerAgent::Options options;
    options.jobs = &jobs_;
    options.clock = &clock_;
    options.on_change = [this] { agent_->Wake(); };
    return options;
  }

  SteadyClock clock_;
  HeldJobs jobs_;
  ServerAgent handler_;
  std::unique_ptr<NodeAgent> agent_;
};

bool IsHeld(const v1::TableState& state) { return !state.has_failure() && !state.has_making(); }
bool IsFailed(const v1::TableState& state) { return state.has_failure(); }

TEST_CASE("Server agent: makes the shards that name it and reports what it has applied",
          "[server]") {
  Daemon daemon;
  daemon.scheduler.SetDesired(Desired(Assignment()));
  const v1::TableState state = daemon.Reported("lenet-1", IsHeld);
  CHECK(state.routing_generation() == 1);
  CHECK(state.membership_generation() == 1);
  REQUIRE_OK_AND_ASSIGN(const auto job, daemon.jobs().Find("lenet-1"));
  REQUIRE(job->shards().size() == 2);
  CHECK(job->shards()[1].elements == Range{8, 16});
}

TEST_CASE("Server agent: takes newer generations in", "[server]") {
  Daemon daemon;
  v1::TableAssignment assignment = Assignment();
  daemon.scheduler.SetDesired(Desired(assignment));
  daemon.Reported("lenet-1", IsHeld);
  assignment.mutable_routing()->set_generation(2);
  assignment.mutable_membership()->set_generation(7);
  daemon.scheduler.SetDesired(Desired(assignment));
  const v1::TableState state = daemon.Reported(
      "lenet-1", [](const v1::TableState& each) { return each.routing_generation() == 2; });
  CHECK(state.membership_generation() == 7);
  CHECK_FALSE(state.has_failure());
}

TEST_CASE("Server agent: drops a job that is no longer wanted, and may get it again", "[server]") {
  Daemon daemon;
  daemon.scheduler.SetDesired(Desired(Assignment()));
  daemon.Reported("lenet-1", IsHeld);
  daemon.scheduler.SetDesired(Desired(std::nullopt));
  REQUIRE(daemon.scheduler
              .WaitForSync([](const v1::SyncNodeRequest& request) {
                return request.generation_seen() == 2 && request.tables().empty();
              })
              .has_value());
  CHECK_STATUS(daemon.jobs().Find("lenet-1"), StatusCode::kNotFound, "not held here");
  daemon.scheduler.SetDesired(Desired(Assignment()));
  REQUIRE(daemon.scheduler
              .WaitForSync([](const v1::SyncNodeRequest& request) {
                return request.generation_seen() == 3 && IsHeld(request.tables(0));
              })
              .has_value());
  REQUIRE_OK(daemon.jobs().Find("lenet-1"));
}

TEST_CASE("Server agent: a new incarnation drops everything and makes it afresh", "[server]") {
  Daemon daemon;
  daemon.scheduler.SetDesired(Desired(Assignment(1)));
  daemon.Reported("lenet-1", IsHeld);
  REQUIRE_OK_AND_ASSIGN(const auto first, daemon.jobs().Find("lenet-1"));
  REQUIRE(daemon.scheduler.WaitUntilHeld());
  daemon.scheduler.FailSync({absl::AbortedError("the lease ran out")});
  REQUIRE(daemon.scheduler.WaitForRegister(2).has_value());
  daemon.scheduler.SetDesired(Desired(Assignment(2)));
  REQUIRE(daemon.scheduler
              .WaitForSync([](const v1::SyncNodeRequest& request) {
                return request.incarnation() == 2 && request.tables_size() == 1 &&
                       request.tables(0).routing_generation() == 1;
              })
              .has_value());
  v1::PushResponse response;
  absl::Status ended;
  first->calls().Push(Detach(PushOf(0, 0, 0, 1.0f)), &response,
                      [&](const auto& end) { ended = end; });
  CHECK_STATUS(ended, StatusCode::kNotFound, "new incarnation");
}

TEST_CASE("Server agent: tables that cannot be made are reported with the reason", "[server]") {
  Daemon daemon;
  v1::TableAssignment assignment = Assignment();
  assignment.mutable_optimizer()->set_learning_rate(-1.0f);
  daemon.scheduler.SetDesired(Desired(assignment));
  const v1::TableState state = daemon.Reported("lenet-1", IsFailed);
  CHECK(state.failure().reason() == v1::Failure::USER_ERROR);
  CHECK_THAT(state.failure().message(), Catch::Contains("learning_rate"));
}

TEST_CASE("Server agent: shards that it never held are refused", "[server]") {
  Daemon daemon;
  v1::TableAssignment assignment = Assignment();
  daemon.scheduler.SetDesired(Desired(assignment));
  daemon.Reported("lenet-1", IsHeld);
  assignment.mutable_routing()->set_generation(2);
  assignment.mutable_routing()->mutable_shards(2)->set_server(0);
  assignment.mutable_routing()->mutable_shards(2)->set_term(2);
  daemon.scheduler.SetDesired(Desired(assignment));
  const v1::TableState state = daemon.Reported("lenet-1", IsFailed);
  CHECK(state.failure().reason() == v1::Failure::INTERNAL);
  CHECK_THAT(state.failure().message(),
             Catch::Contains("routing generation 2 gives this server table 0 shard 2"));
}

TEST_CASE("Server agent: a bad membership is reported, not applied", "[server]") {
  Daemon daemon;
  v1::TableAssignment assignment = Assignment();
  assignment.mutable_membership()->add_members()->set_rank(-3);
  daemon.scheduler.SetDesired(Desired(assignment));
  const v1::TableState state = daemon.Reported("lenet-1", IsFailed);
  CHECK_THAT(state.failure().message(), Catch::Contains("rank -3"));
}

// ---------------------------------------------------------------- without a network

using Node = TestAgent;

TEST_CASE("Server agent: a replica is promoted with what it holds, a primary is never invented",
          "[server]") {
  Node node;
  v1::TableAssignment assignment = Whole(1, 1);
  assignment.set_replicas(1);
  v1::RoutingTable& routing = *assignment.mutable_routing();
  routing = TestRouting(1, "server-2", 1);
  AddReplica(&routing, "server-1", /*in_sync=*/true);
  CHECK_FALSE(node.Take(assignment).has_failure());
  CHECK(node.job().shards().empty());
  SECTION("filled before") {
    REQUIRE_OK_AND_ASSIGN(const TableShard other,
                          node.job().factory().Initial({{TableId(0), ShardId(0)}, {0, 16}}));
    for (int32_t shard = 0; shard < 2; ++shard) {
      REQUIRE_OK_AND_ASSIGN(const TableShard made,
                            node.job().factory().Initial({{TableId(0), ShardId(shard)},
                                                          {shard * 16, shard == 0 ? 16 : 24}}));
      v1::ReplicateRequest request;
      request.set_shard(shard);
      request.set_sender("server-2");
      request.set_term(1);
      request.set_routing_generation(1);
      *request.mutable_install() = made.Snapshot().value();
      v1::ReplicateResponse response;
      node.job().replica_calls().Replicate(request, &response,
                                           [](const absl::Status& status) { REQUIRE_OK(status); });
      CHECK(response.term() == 1);
    }
    routing = TestRouting(2, "server-1", 2);
    CHECK_FALSE(node.Take(assignment).has_failure());
    CHECK(node.job().shards().size() == 2);
    CHECK(node.value(2) == 0.0f);
  }
  SECTION("not filled") {
    routing = TestRouting(2, "server-1", 2);
    const v1::TableState state = node.Take(assignment);
    CHECK(state.failure().reason() == v1::Failure::INTERNAL);
    CHECK_THAT(state.failure().message(), Catch::Contains("whose values it has never held"));
  }
}

TEST_CASE("Server agent: a checkpoint is captured, written and restored, also over newer values",
          "[server]") {
  Node node;
  v1::TableAssignment assignment = Whole(1, 1);
  node.Take(assignment);
  node.Push(1, 1);
  assignment.mutable_checkpoint()->set_checkpoint_id(4);
  assignment.mutable_checkpoint()->set_folder("checkpoint-4");
  v1::TableState state = node.Take(assignment);
  REQUIRE(state.checkpoints_size() == 1);
  CHECK(state.checkpoints(0).checkpoint_id() == 4);
  CHECK(state.checkpoints(0).state() == v1::CheckpointState::CAPTURED);
  node.Push(1, 2);
  const int changes = node.changes;
  SECTION("written") {
    v1::CheckpointPart part;
    part.set_file("0-0.part");
    node.memory.written(std::vector<v1::CheckpointPart>{part});
    state = node.State();
    CHECK(state.checkpoints(0).state() == v1::CheckpointState::WRITTEN);
    CHECK(state.checkpoints(0).parts(0).file() == "0-0.part");
  }
  SECTION("failed") {
    node.memory.written(absl::ResourceExhaustedError("no space"));
    state = node.State();
    CHECK(state.checkpoints(0).state() == v1::CheckpointState::FAILED);
    CHECK(state.checkpoints(0).error() == "no space");
  }
  CHECK(node.changes == changes + 1);
  CHECK(node.value(1) == -2.0f);
  assignment = Whole(2, 2);
  assignment.set_restore_term(2);
  assignment.set_restore_folder("checkpoint-4");
  state = node.Take(assignment);
  CHECK(state.checkpoints_size() == 0);
  CHECK(state.routing_generation() == 2);
  CHECK(node.value(2) == -1.0f);
  assignment.mutable_routing()->set_generation(3);  // It must not restore again.
  node.Push(2, 3);
  node.Take(assignment);
  CHECK(node.value(3) == -2.0f);
}

TEST_CASE("Server agent: a checkpoint that cannot be read is named as bad data", "[server]") {
  Node node;
  v1::TableAssignment assignment = Whole(2, 2);
  assignment.set_restore_term(2);
  assignment.set_restore_folder("checkpoint-9");
  const v1::TableState state = node.Take(assignment);
  CHECK(state.failure().reason() == v1::Failure::BAD_DATA);
  CHECK_THAT(state.failure().message(), Catch::Contains("table 0 shard 0: checkpoint-9: no such"));
}

TEST_CASE("Server agent: a restore that is cancelled is no failure of the job", "[server]") {
  Node node;
  node.memory.read_failure = absl::CancelledError("this process stops");
  v1::TableAssignment assignment = Whole(2, 2);
  assignment.set_restore_term(2);
  assignment.set_restore_folder("checkpoint-4");
  CHECK_FALSE(node.Take(assignment).has_failure());
}

TEST_CASE("Server agent: rows on disk that are asked for without a folder are a user's error",
          "[server]") {
  Node node;
  v1::TableAssignment assignment = Whole(1, 1);
  *assignment.add_tables() = TestSparseTable(/*buckets=*/1);
  assignment.mutable_tables(1)->mutable_sparse()->set_memory_bytes(1 << 20);
  const v1::TableState state = node.Take(assignment);
  CHECK(state.failure().reason() == v1::Failure::USER_ERROR);
  CHECK_THAT(state.failure().message(), Catch::Contains("--data-dir"));
}

TEST_CASE("Server agent: after a checkpoint that cannot be read the one before is restored",
          "[server]") {
  Node node;
  v1::TableAssignment assignment = Whole(1, 1);
  node.Take(assignment);
  node.Push(1, 1);
  assignment.mutable_checkpoint()->set_checkpoint_id(4);
  assignment.mutable_checkpoint()->set_folder("checkpoint-4");
  node.Take(assignment);
  node.Push(1, 2);
  assignment = Whole(2, 2);
  assignment.set_restore_term(2);
  assignment.set_restore_folder("checkpoint-9");
  REQUIRE(node.Take(assignment).failure().reason() == v1::Failure::BAD_DATA);
  assignment.mutable_routing()->set_generation(3);
  CHECK(node.Take(assignment).has_failure());  // The same again is no better.
  assignment = Whole(4, 4);
  assignment.set_restore_term(4);
  assignment.set_restore_folder("checkpoint-4");
  CHECK_FALSE(node.Take(assignment).has_failure());
  CHECK(node.value(4) == -1.0f);
}

TEST_CASE("Server agent: a job with a log is taken up again by the next incarnation", "[server]") {
  Node node;
  v1::TableAssignment assignment = Whole(1, 1);
  assignment.set_durability(v1::LOG);
  node.Take(assignment);
  node.Push(1, 1);
  node.Push(1, 2);
  CHECK(node.memory.logs.size() == 2);
  node.agent.Restarted("server-1", Incarnation(2));
  CHECK(node.memory.logs.size() == 2);  // It outlives the process.
  *assignment.mutable_routing() = TestRouting(2, "server-1", 2);
  assignment.mutable_routing()->mutable_servers(0)->set_incarnation(2);
  assignment.set_log_term(2);
  CHECK_FALSE(node.Take(assignment).has_failure());
  for (const auto& [shard, log] : node.memory.logs) {
    const Position end(log.records.back()->position());  // It goes on where it was.
    node.jobs.OnLogged("lenet-1", "", shard, Term(2), end);
  }
  CHECK(node.value(2) == -2.0f);
  node.agent.TakeDesired(Desired(std::nullopt));
  CHECK(node.memory.logs.empty());  // The job is over.
}

TEST_CASE("Server agent: the record of a job with a log is kept before its tables are made",
          "[server]") {
  Node node;
  v1::TableAssignment assignment = Whole(1, 1);
  assignment.set_unique_id("aa-1");
  assignment.set_record("first");
  node.Take(assignment);
  CHECK(node.memory.records.empty());  // It has no log.
  node.agent.TakeDesired(Desired(std::nullopt));
  assignment.set_durability(v1::LOG);
  CHECK_FALSE(node.Take(assignment).has_version_max());
  CHECK(node.memory.identified.at("lenet-1") == "aa-1");
  node.Take(assignment);  // Nothing new.
  assignment.set_record("second");
  node.Take(assignment);
  assignment.clear_record();
  node.Take(assignment);
  CHECK(node.memory.records == std::vector<std::string>{"lenet-1 first", "lenet-1 second"});
}

TEST_CASE("Server agent: of shards from a log the highest version is told", "[server]") {
  Node node;
  v1::TableAssignment assignment = Whole(1, 1);
  assignment.set_durability(v1::LOG);
  node.Take(assignment);
  node.Push(1, 1);
  node.Push(1, 2);
  node.agent.Restarted("server-1", Incarnation(2));
  *assignment.mutable_routing() = TestRouting(2, "server-1", 2);
  assignment.mutable_routing()->mutable_servers(0)->set_incarnation(2);
  assignment.set_log_term(2);
  const v1::TableState state = node.Take(assignment);
  REQUIRE(state.has_version_max());
  CHECK(state.version_max() == 2);
}

TEST_CASE("Server agent: a job of the same id that is another one takes nothing over", "[server]") {
  Node node;
  v1::TableAssignment assignment = Whole(1, 1);
  assignment.set_durability(v1::LOG);
  assignment.set_unique_id("aa-1");
  node.Take(assignment);
  node.Push(1, 1);
  CHECK(node.memory.logs.begin()->second.records.size() == 1);
  assignment.set_unique_id("bb-2");
  CHECK_FALSE(node.Take(assignment).has_failure());
  CHECK(node.memory.identified.at("lenet-1") == "bb-2");
  CHECK(node.memory.logs.begin()->second.records.empty());
}

TEST_CASE("Server agent: logs and their records are registered with", "[server]") {
  HeldJobs jobs;
  ServerAgent::Options options;
  options.jobs = &jobs;
  options.logs = [] {
    v1::KeptLog log;
    log.set_unique_id("aa-1");
    return std::vector<v1::KeptLog>{log};
  };
  ServerAgent agent(options);
  v1::RegisterRequest request;
  agent.FillRegistration(request);
  REQUIRE(request.logs_size() == 1);
  CHECK(request.logs(0).unique_id() == "aa-1");
}

// Seed 1885054752: the second time came after the checkpoint was complete, and damaged it.
TEST_CASE("Server agent: a checkpoint is written once, though the one before it was given up",
          "[server]") {
  struct Sink final : CheckpointSink {
    void Write(const JobId&, const v1::CheckpointOrder& order, std::vector<CapturedShard>,
               Done) override {
      written.push_back(order.checkpoint_id());
    }
    std::vector<uint64_t> written;
  };
  Sink sink;
  HeldJobs jobs;
  ManualClock clock;
  std::vector<std::function<void()>> queue;  // Run later, as by a thread that is busy.
  ServerAgent::Options options;
  options.jobs = &jobs;
  options.clock = &clock;
  options.checkpoints = &sink;
  options.on_change = [] {};
  options.execute = [&queue](std::function<void()> work) { queue.push_back(std::move(work)); };
  ServerAgent agent(options);
  agent.Restarted("server-1", Incarnation(1));
  const auto run = [&queue] {
    for (const auto& work : std::exchange(queue, {})) work();
  };
  v1::TableAssignment assignment = Whole(1, 1);
  agent.TakeDesired(Desired(assignment));
  run();
  for (const uint64_t id : {4, 5}) {
    assignment.mutable_checkpoint()->set_checkpoint_id(id);
    assignment.mutable_checkpoint()->set_folder(absl::StrCat("checkpoint-", id));
    agent.TakeDesired(Desired(assignment));
  }
  run();
  CHECK(sink.written == std::vector<uint64_t>{5});
  jobs.DropAll(absl::UnavailableError("the test ends"));
}

TEST_CASE("Server agent: a log that is asked for and not there is the job's failure", "[server]") {
  HeldJobs jobs;
  ManualClock clock;
  ServerAgent::Options options;
  options.jobs = &jobs;
  options.clock = &clock;
  options.on_change = [] {};
  options.execute = [](const std::function<void()>& work) { work(); };
  ServerAgent agent(options);
  agent.Restarted("server-1", Incarnation(1));
  v1::TableAssignment assignment = Whole(1, 1);
  assignment.set_durability(v1::LOG);
  agent.TakeDesired(Desired(assignment));
  v1::SyncNodeRequest request;
  agent.FillState(request);
  CHECK(request.tables(0).failure().reason() == v1::Failure::USER_ERROR);
  CHECK_THAT(request.tables(0).failure().message(), Catch::Contains("this server keeps no log"));
}

TEST_CASE(
    "Server agent: a new incarnation is needed once a log has failed, if no job lives here alone",
    "[server]") {
  TestAgent node;
  v1::TableAssignment logged = Whole(1, 1);
  logged.set_durability(v1::LOG);
  v1::TableAssignment other = Whole(1, 1, "other-2");
  const auto replicas = GENERATE(0, 1);
  other.set_replicas(replicas);
  v1::SyncNodeResponse desired = Desired(logged);
  *desired.add_tables() = other;
  node.agent.TakeDesired(desired);
  CHECK(node.agent.NeedOfNewIncarnation(/*log_waits=*/false) == LogRecovery::Need::kNone);
  node.jobs.OnLogFailed("lenet-1", "", absl::ResourceExhaustedError("wal-1: no space"));
  CHECK(node.agent.NeedOfNewIncarnation(/*log_waits=*/false) ==
        (replicas == 0 ? LogRecovery::Need::kLater : LogRecovery::Need::kNow));
  node.agent.TakeDesired(Desired(logged));
  CHECK(node.agent.NeedOfNewIncarnation(/*log_waits=*/false) == LogRecovery::Need::kNow);

  v1::RegisterRequest request;
  node.agent.FillRegistration(request);
  CHECK(node.jobs.All().empty());
  CHECK(node.agent.NeedOfNewIncarnation(/*log_waits=*/false) == LogRecovery::Need::kNone);
  CHECK(node.agent.NeedOfNewIncarnation(/*log_waits=*/true) == LogRecovery::Need::kNow);
}

}  // namespace
}  // namespace capstan::server::server_agent_test
