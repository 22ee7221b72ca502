#include "common/net/node/node_agent.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/node/agent_timing.h"
#include "common/net/testing/fake_scheduler.h"
#include "common/testing/status_matchers.h"

namespace capstan::node_agent_test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

// A daemon that holds the names of jobs, and reports a table for each.
class FakeNode final : public NodeHandler {
 public:
  void Restarted(const NodeId& node_id, Incarnation incarnation) override {
    absl::MutexLock lock(&mutex_);
    jobs_.clear();
    incarnations_.push_back(node_id + "#" + std::to_string(incarnation.value()));
  }
  void FillState(v1::SyncNodeRequest& request) override {
    absl::MutexLock lock(&mutex_);
    for (const std::string& job : jobs_) request.add_tables()->set_job_id(job);
  }
  void TakeDesired(const v1::SyncNodeResponse& response) override {
    absl::MutexLock lock(&mutex_);
    jobs_.clear();
    for (const v1::TableAssignment& table : response.tables()) jobs_.push_back(table.job_id());
    ++taken_;
  }

  void Hold(const std::string& job) {
    absl::MutexLock lock(&mutex_);
    jobs_.push_back(job);
  }
  std::vector<std::string> incarnations() {
    absl::MutexLock lock(&mutex_);
    return incarnations_;
  }
  std::vector<std::string> jobs() {
    absl::MutexLock lock(&mutex_);
    return jobs_;
  }
  int taken() {
    absl::MutexLock lock(&mutex_);
    return taken_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> jobs_;
  std::vector<std::string> incarnations_;
  int taken_ = 0;
};

NodeAgent::Options OptionsFor(const std::string& scheduler) {
  NodeAgent::Options options;
  options.scheduler = scheduler;
  options.self.set_role(v1::SERVER);
  options.self.set_name("server-1");
  options.self.set_address("127.0.0.1:4242");
  return options;
}

v1::SyncNodeResponse Desired(const std::string& job) {
  v1::SyncNodeResponse desired;
  desired.add_tables()->set_job_id(job);
  return desired;
}

auto Reports(const std::string& job) {
  return [job](const v1::SyncNodeRequest& request) {
    return request.tables_size() == 1 && request.tables(0).job_id() == job;
  };
}

TEST_CASE("NodeAgent: registers with its address and both versions, then takes the desired state",
          "[net]") {
  testing::FakeScheduler scheduler;
  FakeNode node;
  NodeAgent agent(OptionsFor(scheduler.address()), &node);
  agent.Start();
  const auto registered = scheduler.WaitForRegister(1);
  REQUIRE(registered.has_value());
  CHECK(registered->address() == "127.0.0.1:4242");
  CHECK(registered->protocol_version() == v1::PROTOCOL_VERSION_CURRENT);
  CHECK_FALSE(registered->version().empty());

  REQUIRE(scheduler.WaitUntilHeld());
  v1::SyncNodeResponse desired = Desired("lenet-1");
  desired.mutable_revision()->set_scheduler(70);
  desired.mutable_revision()->set_count(12);
  scheduler.SetDesired(desired);
  const auto report = scheduler.WaitForSync(Reports("lenet-1"));
  REQUIRE(report.has_value());
  CHECK(report->revision_seen().scheduler() == 70);
  CHECK(report->revision_seen().count() == 12);
  CHECK(report->node_id() == "server-1");
  CHECK(report->incarnation() == 1);
  CHECK(report->generation_seen() == 1);
  CHECK(node.incarnations() == std::vector<std::string>{"server-1#1"});
}

TEST_CASE("NodeAgent: Wake sends the new state at once though a call is held", "[net]") {
  testing::FakeScheduler scheduler;
  FakeNode node;
  NodeAgent agent(OptionsFor(scheduler.address()), &node);
  agent.Start();
  REQUIRE(scheduler.WaitUntilHeld());
  const absl::Time before = absl::Now();
  node.Hold("lenet-7");
  agent.Wake();
  REQUIRE(scheduler.WaitForSync(Reports("lenet-7")).has_value());
  CHECK(absl::Now() - before < absl::Seconds(5));  // The sync interval is 10 s.
}

TEST_CASE("NodeAgent: the end of an incarnation leads to a new one that starts empty", "[net]") {
  testing::FakeScheduler scheduler;
  FakeNode node;
  NodeAgent agent(OptionsFor(scheduler.address()), &node);
  agent.Start();
  REQUIRE(scheduler.WaitUntilHeld());
  v1::SyncNodeResponse desired = Desired("lenet-1");
  desired.mutable_revision()->set_scheduler(70);
  scheduler.SetDesired(desired);
  REQUIRE(scheduler.WaitForSync(Reports("lenet-1")).has_value());
  const absl::StatusCode code = GENERATE(absl::StatusCode::kAborted, absl::StatusCode::kNotFound);
  scheduler.FailSync({absl::Status(code, "the lease ran out")});
  const auto second = scheduler.WaitForSync(
      [](const v1::SyncNodeRequest& request) { return request.incarnation() == 2; });
  REQUIRE(second.has_value());
  CHECK(second->generation_seen() == 0);
  CHECK_FALSE(second->has_revision_seen());
  CHECK(second->tables_size() == 0);
  CHECK(node.incarnations() == std::vector<std::string>{"server-1#1", "server-1#2"});
}

TEST_CASE("NodeAgent: a node may begin a new incarnation itself, unless it leaves", "[net]") {
  testing::FakeScheduler scheduler;
  FakeNode node;
  NodeAgent agent(OptionsFor(scheduler.address()), &node);
  agent.Start();
  REQUIRE(scheduler.WaitUntilHeld());
  node.Hold("lenet-1");
  agent.BeginAnew();
  const auto second = scheduler.WaitForSync(
      [](const v1::SyncNodeRequest& request) { return request.incarnation() == 2; });
  REQUIRE(second.has_value());
  CHECK(second->tables_size() == 0);
  CHECK(scheduler.WaitForRegister(2)->name() == "server-1");

  REQUIRE_OK(agent.Leave(kPatience));
  agent.BeginAnew();
  REQUIRE_OK(agent.Leave(kPatience));  // A later call of the same incarnation.
  CHECK(node.incarnations() == std::vector<std::string>{"server-1#1", "server-1#2"});
}

TEST_CASE("NodeAgent: Wake lets a registration end", "[net]") {
  testing::FakeScheduler scheduler;
  FakeNode node;
  NodeAgent agent(OptionsFor(scheduler.address()), &node);
  scheduler.DuringRegister([&] { agent.Wake(); });
  agent.Start();
  REQUIRE(scheduler.WaitUntilHeld());
  CHECK(scheduler.register_attempts() == 1);
  CHECK(node.incarnations() == std::vector<std::string>{"server-1#1"});
}

TEST_CASE("NodeAgent: a name that the scheduler gave is kept, unless it went to another daemon",
          "[net]") {
  testing::FakeScheduler scheduler;
  FakeNode node;
  NodeAgent::Options options = OptionsFor(scheduler.address());
  options.self.clear_name();
  NodeAgent agent(options, &node);
  agent.Start();
  REQUIRE(scheduler.WaitUntilHeld());
  CHECK(scheduler.WaitForRegister(1)->name().empty());
  SECTION("the scheduler has forgotten it") {
    scheduler.FailSync({absl::NotFoundError("not registered")});
    const auto second = scheduler.WaitForRegister(2);
    REQUIRE(second.has_value());
    CHECK(second->name() == "node-1");
  }
  SECTION("another daemon has it") {
    scheduler.FailRegister({absl::AlreadyExistsError("held by another")});
    scheduler.FailSync({absl::AbortedError("the lease ran out")});
    const auto second = scheduler.WaitForRegister(2);
    REQUIRE(second.has_value());
    CHECK(second->name().empty());
  }
}

TEST_CASE("NodeAgent: a scheduler that is away for a while is found again in the same incarnation",
          "[net]") {
  testing::FakeScheduler scheduler;
  FakeNode node;
  NodeAgent agent(OptionsFor(scheduler.address()), &node);
  agent.Start();
  REQUIRE(scheduler.WaitUntilHeld());
  scheduler.Down();
  node.Hold("lenet-3");
  agent.Wake();
  scheduler.Up();
  REQUIRE(scheduler.WaitForSync(Reports("lenet-3")).has_value());
  CHECK(node.incarnations().size() == 1);
}

TEST_CASE("NodeAgent: errors that may pass are tried again", "[net]") {
  testing::FakeScheduler scheduler;
  scheduler.FailRegister({absl::UnavailableError("not yet"),
                          absl::AbortedError("held by one that may be dead: ask again")});
  FakeNode node;
  NodeAgent agent(OptionsFor(scheduler.address()), &node);
  agent.Start();
  REQUIRE(scheduler.WaitForRegister(1).has_value());
  CHECK(scheduler.register_attempts() == 3);
}

// Records the status with which an agent gives up. Outlives the agent.
struct Fatal {
  explicit Fatal(NodeAgent::Options& options) {
    options.on_fatal = [this](const absl::Status& said) {
      status = said;
      ended.Notify();
    };
  }

  absl::Status status;
  absl::Notification ended;
};

TEST_CASE("NodeAgent: a refusal ends it with the scheduler's words", "[net]") {
  testing::FakeScheduler scheduler;
  const absl::Status refusal =
      GENERATE(absl::FailedPreconditionError("protocol version 1, expected 2"),
               absl::InvalidArgumentError("name: \"a b\": expected letters"));
  scheduler.FailRegister({refusal});
  FakeNode node;
  NodeAgent::Options options = OptionsFor(scheduler.address());
  Fatal fatal(options);
  NodeAgent agent(options, &node);
  agent.Start();
  REQUIRE(fatal.ended.WaitForNotificationWithTimeout(kPatience));
  agent.Stop();
  CHECK_STATUS(fatal.status, refusal.code(), std::string(refusal.message()));
  CHECK_STATUS(fatal.status, refusal.code(), scheduler.address());
  CHECK(scheduler.register_attempts() == 1);
  CHECK(node.incarnations().empty());
}

TEST_CASE("NodeAgent: a name that another daemon has is asked for, for a moment", "[net]") {
  testing::FakeScheduler scheduler;
  const absl::Status taken = absl::AlreadyExistsError("name: \"server-1\" is held by another");
  FakeNode node;
  NodeAgent::Options options = OptionsFor(scheduler.address());
  Fatal fatal(options);
  NodeAgent agent(options, &node);
  SECTION("that one was killed") {
    scheduler.FailRegister({taken, taken});
    agent.Start();
    REQUIRE(scheduler.WaitForRegister(1).has_value());
    CHECK_FALSE(fatal.ended.HasBeenNotified());
  }
  SECTION("that one lives") {
    scheduler.FailRegister(std::vector<absl::Status>(1000, taken));
    agent.Start();
    REQUIRE(fatal.ended.WaitForNotificationWithTimeout(kPatience));
    agent.Stop();
    CHECK_STATUS(fatal.status, absl::StatusCode::kAlreadyExists, "is held by another");
    CHECK(node.incarnations().empty());
  }
}

TEST_CASE("NodeAgent: a peer that is no scheduler is named as such", "[net]") {
  REQUIRE_OK_AND_ASSIGN(const auto other, GrpcServer::Start({}));
  FakeNode node;
  NodeAgent::Options options = OptionsFor(other->address());
  Fatal fatal(options);
  NodeAgent agent(options, &node);
  agent.Start();
  REQUIRE(fatal.ended.WaitForNotificationWithTimeout(kPatience));
  agent.Stop();
  CHECK_STATUS(fatal.status, absl::StatusCode::kFailedPrecondition, "no Capstan scheduler");
}

TEST_CASE("NodeAgent: Leave is answered, and later calls still say so", "[net]") {
  testing::FakeScheduler scheduler;
  FakeNode node;
  NodeAgent agent(OptionsFor(scheduler.address()), &node);
  agent.Start();
  REQUIRE(scheduler.WaitUntilHeld());
  REQUIRE_OK(agent.Leave(kPatience));
  node.Hold("late");
  agent.Wake();
  const auto later = scheduler.WaitForSync(Reports("late"));
  REQUIRE(later.has_value());
  CHECK(later->leaving());
}

TEST_CASE("NodeAgent: Leave gives up when the scheduler does not answer", "[net]") {
  testing::FakeScheduler scheduler;
  FakeNode node;
  NodeAgent agent(OptionsFor(scheduler.address()), &node);
  agent.Start();
  REQUIRE(scheduler.WaitUntilHeld());
  scheduler.Down();
  CHECK_STATUS(agent.Leave(absl::Milliseconds(50)), absl::StatusCode::kDeadlineExceeded,
               scheduler.address());
}

TEST_CASE("NodeAgent: a node that leaves when it is safe lives on until the scheduler says so",
          "[net]") {
  testing::FakeScheduler scheduler;
  scheduler.SetMayStop(false);
  FakeNode node;
  NodeAgent agent(OptionsFor(scheduler.address()), &node);
  absl::Notification left;
  std::atomic<bool> left_safely = false;
  bool expected = false;
  agent.Start();
  REQUIRE(scheduler.WaitUntilHeld());
  agent.LeaveWhenSafe([&](bool safe) {
    left_safely = safe;
    left.Notify();
  });
  REQUIRE(scheduler.WaitForSync([](const auto& sync) { return sync.leaving(); }).has_value());
  SECTION("it may stop") {
    scheduler.SetDesired(Desired("lenet-1"));  // It still does what it is told.
    const auto report = scheduler.WaitForSync(Reports("lenet-1"));
    REQUIRE(report.has_value());
    CHECK(report->leaving());
    CHECK_FALSE(left.HasBeenNotified());
    scheduler.SetMayStop(true);
    expected = true;
  }
  SECTION("its incarnation is over") {
    scheduler.FailSync({absl::AbortedError("the lease ran out")});
  }
  CHECK(left.WaitForNotificationWithTimeout(kPatience));
  // An incarnation that is over may leave a log for which a job waits.
  CHECK(left_safely == expected);
  CHECK(scheduler.register_attempts() == 1);
}

TEST_CASE("NodeAgent: a node that is not registered leaves at once, and does not call it safe",
          "[net]") {
  FakeNode node;
  NodeAgent agent(OptionsFor("127.0.0.1:1"), &node);
  absl::Notification left;
  std::atomic<bool> left_safely = true;
  agent.Start();
  agent.LeaveWhenSafe([&](bool safe) {
    left_safely = safe;
    left.Notify();
  });
  CHECK(left.WaitForNotificationWithTimeout(kPatience));
  CHECK_FALSE(left_safely);
}

TEST_CASE("Agent timing: a lease bears two syncs that are lost, and a third that comes through",
          "[net]") {
  v1::RegisterResponse registered;
  for (const int lease_ms : {1'000, 3'000, 60'000}) {
    registered.set_lease_ms(lease_ms);
    registered.set_sync_interval_ms(lease_ms / 15);
    const absl::Duration timeout = agent_timing::SyncTimeout(registered);
    const absl::Duration third = 2 * timeout + 3 * agent_timing::kBackoffMin;  // Doubled once.
    CHECK(third < absl::Milliseconds(lease_ms));
    CHECK(timeout > absl::Milliseconds(registered.sync_interval_ms()));
  }
  // A scheduler that says nothing of the kind.
  CHECK(agent_timing::SyncTimeout(v1::RegisterResponse()) >= absl::Milliseconds(250));
}

TEST_CASE("NodeAgent: Stop ends a held call and may be called twice", "[net]") {
  testing::FakeScheduler scheduler;
  FakeNode node;
  NodeAgent agent(OptionsFor(scheduler.address()), &node);
  agent.Start();
  REQUIRE(scheduler.WaitUntilHeld());
  const absl::Time before = absl::Now();
  agent.Stop();
  agent.Stop();
  CHECK(absl::Now() - before < absl::Seconds(5));  // The sync interval is 10 s.
}

}  // namespace
}  // namespace capstan::node_agent_test
