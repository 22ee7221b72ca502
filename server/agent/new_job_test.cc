// Tests that deadlines and log failures which come with a new job's first routing table find the
// job.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/time/clock.h"
#include "server/agent/server_agent.h"
#include "server/engine/testing/job_fixture.h"

namespace capstan::server::new_job_test {
namespace {

// An agent of "server-1" whose orders run at once, its timer, and a replica that knows nothing yet.
class Node final : public ReplicaTransport {
 public:
  explicit Node(RecordSink* log = nullptr) : agent_(Options(log)) {
    agent_.Restarted("server-1", Incarnation(1));
  }

  // The job of the tests of the service, by ASP, with both shards on server-1.
  void Take(bool logs, const std::vector<NodeId>& replicas) {
    v1::SyncNodeResponse desired;
    v1::TableAssignment& assignment = *desired.add_tables();
    assignment.set_job_id("lenet-1");
    *assignment.add_tables() = TestTable();
    assignment.mutable_optimizer()->set_learning_rate(1.0f);
    assignment.mutable_optimizer()->mutable_sgd();
    assignment.mutable_consistency()->mutable_asp();
    assignment.mutable_membership()->set_generation(1);
    if (logs) assignment.set_durability(v1::LOG);
    assignment.set_replicas(static_cast<int32_t>(replicas.size()));
    v1::RoutingTable& routing = *assignment.mutable_routing();
    routing = TestRouting(1);
    for (const NodeId& replica : replicas) AddReplica(&routing, replica, /*in_sync=*/true);
    agent_.TakeDesired(desired);
  }
  v1::TableState State() {
    v1::SyncNodeRequest request;
    agent_.FillState(request);
    REQUIRE(request.tables_size() == 1);
    return request.tables(0);
  }

  void Send(const v1::ServerAddress&, ReplicaRequest, Moved, Done done) override {
    ++sends;
    unanswered_.push_back(std::move(done));
  }
  void RefuseAll() {
    for (const Done& done : std::exchange(unanswered_, {})) {
      done(absl::NotFoundError("the job is not held here"), {});
    }
  }
  // Does what DeadlineTimer does when its time has come.
  void RunTimer() {
    clock_.Advance(next - clock_.Now());
    next = Instant::InfiniteFuture();
    const Instant following = jobs.Tick(clock_.Now());
    next = std::min(next, following);
  }

  HeldJobs jobs;
  Instant next = Instant::InfiniteFuture();  // The timer's.
  int sends = 0;
  std::function<void()> on_schedule;

 private:
  ServerAgent::Options Options(RecordSink* log) {
    ServerAgent::Options options;
    options.jobs = &jobs;
    options.clock = &clock_;
    options.transport = this;
    options.log = log;
    options.on_change = [] {};
    options.schedule_tick = [this](Instant at) {
      next = std::min(next, at);
      if (const auto then = std::exchange(on_schedule, nullptr)) then();
    };
    options.execute = [](const std::function<void()>& work) { work(); };
    return options;
  }

  ManualClock clock_;
  std::vector<Done> unanswered_;
  ServerAgent agent_;
};

TEST_CASE("New job: a timer that is faster than its maker ticks it", "[server]") {
  Node node;
  node.on_schedule = [&node] {  // The first messages have left.
    node.RefuseAll();
    node.RunTimer();
  };
  node.Take(/*logs=*/false, {"server-2"});
  CHECK(node.sends == 4);  // Both shards twice.
  node.RefuseAll();
  REQUIRE(node.next != Instant::InfiniteFuture());
  node.RunTimer();
  CHECK(node.sends == 6);
}

// A log whose disk is full.
class FullLog final : public RecordSink {
 public:
  void Begin(const JobId& job, const ShardKey&, Term, std::shared_ptr<const v1::ShardSnapshot>,
             std::shared_ptr<CapturedRows>) override {
    told.push_back(std::async(std::launch::async, [this, job] {
      jobs->OnLogFailed(job, "", absl::ResourceExhaustedError("wal-1: no space"));
    }));
  }
  void Append(const JobId&, const ShardKey&, Term,
              std::shared_ptr<const v1::ShardRecord>) override {}
  void Continue(const JobId&, const ShardKey&, Term, Position) override {}
  void Forget(const JobId&, const ShardKey&) override {}
  void ForgetJob(const JobId&) override {}

  HeldJobs* jobs = nullptr;
  std::vector<std::future<void>> told;
};

TEST_CASE("New job: a log that fails with its first words is the job's failure", "[server]") {
  FullLog log;
  Node node(&log);
  log.jobs = &node.jobs;
  node.Take(/*logs=*/true, {});
  REQUIRE(log.told.size() == 2);
  for (std::future<void>& each : log.told) each.wait();
  CHECK(node.State().failure().reason() == v1::Failure::SERVER_LOST);
}

}  // namespace
}  // namespace capstan::server::new_job_test
