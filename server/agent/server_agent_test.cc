#include "server/agent/server_agent.h"

#include <memory>
#include <optional>
#include <string>

#include "common/net/fake_scheduler.h"
#include "common/testing/status_matchers.h"
#include "server/service/test_job.h"

namespace capstan::server {
namespace {

using absl::StatusCode;

// A server daemon without its data port, tied to a fake scheduler.
class Daemon {
 public:
  Daemon() : handler_(&jobs_, [this] { agent_->Wake(); }) {
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
  HeldJobs jobs_;
  ServerAgent handler_;
  std::unique_ptr<NodeAgent> agent_;
};

bool IsHeld(const v1::TableState& state) { return !state.has_failure(); }
bool IsFailed(const v1::TableState& state) { return state.has_failure(); }

// Job "lenet-1": both shards of the test table on life `incarnation` of server-1, a third
// elsewhere.
v1::TableAssignment Assignment(uint64_t incarnation = 1) {
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
  return assignment;
}

v1::SyncNodeResponse Desired(const std::optional<v1::TableAssignment>& assignment) {
  v1::SyncNodeResponse desired;
  if (assignment.has_value()) *desired.add_tables() = *assignment;
  return desired;
}

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
                return request.generation_seen() == 3 && request.tables_size() == 1;
              })
              .has_value());
  REQUIRE_OK(daemon.jobs().Find("lenet-1"));
}

TEST_CASE("Server agent: a new life drops everything and makes it afresh", "[server]") {
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
  CHECK_STATUS(first->Push(PushOf(0, 0, 0, 1.0f), &response), StatusCode::kNotFound, "new life");
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

}  // namespace
}  // namespace capstan::server
