// The real capstan-server process against a fake scheduler: how it starts, serves, stops and
// refuses.
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/net/testing/daemon_process.h"
#include "common/net/testing/fake_scheduler.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/engine/testing/job_fixture.h"

namespace capstan::server::server_process_test {
namespace {

using capstan::testing::DaemonProcess;
using capstan::testing::FakeScheduler;
using capstan::testing::kProcessPatience;

constexpr char kProgram[] = "server/capstan-server";

TEST_CASE("capstan-server: registers what it is and serves the data plane there", "[server]") {
  FakeScheduler scheduler;
  const DaemonProcess server(kProgram, scheduler.address(), {"--name=server-7"});
  const auto registered = scheduler.WaitForRegister(1);
  INFO(server.log());
  REQUIRE(registered.has_value());
  CHECK(registered->role() == v1::SERVER);
  CHECK(registered->name() == "server-7");
  CHECK(registered->pid() == server->pid());
  CHECK(server.port_file() == registered->address() + "\n");

  const auto stub =
      v1::ParameterServer::NewStub(MakeChannel(registered->address(), ChannelKind::kData));
  grpc::ClientContext context;
  SetDeadline(context, kProcessPatience);
  v1::PushResponse response;
  CHECK_STATUS(FromGrpcStatus(stub->Push(&context, PushOf(0, 0, 0, 1.0f), &response)),
               absl::StatusCode::kNotFound, "this server holds 0 jobs");
}

TEST_CASE("capstan-server: SIGTERM and SIGINT say good-bye and exit with 0", "[server]") {
  capstan::testing::CheckSaysGoodBye(kProgram, GENERATE(SIGTERM, SIGINT));
}

TEST_CASE("capstan-server: a scheduler of another protocol ends it with 1 and the cause",
          "[server]") {
  capstan::testing::CheckRefusedByScheduler(kProgram);
}

TEST_CASE("capstan-server: a port in use ends it with 1 and the address", "[server]") {
  capstan::testing::CheckPortInUse(kProgram);
}

TEST_CASE("capstan-server: an unreachable scheduler is named, and does not keep it from stopping",
          "[server]") {
  capstan::testing::CheckStopsWithoutScheduler(kProgram, {});
}

// The whole test table on server-7, ASP, with a log; of incarnation `incarnation`.
v1::SyncNodeResponse LoggedJob(uint64_t generation, uint64_t incarnation) {
  v1::SyncNodeResponse desired;
  v1::TableAssignment* assignment = desired.add_tables();
  assignment->set_job_id("lenet-1");
  *assignment->add_tables() = TestTable();
  assignment->mutable_optimizer()->set_learning_rate(1.0f);
  assignment->mutable_optimizer()->mutable_sgd();
  assignment->mutable_consistency()->mutable_asp();
  assignment->set_durability(v1::LOG);
  *assignment->mutable_routing() = TestRouting(generation, "server-7", generation);
  assignment->mutable_routing()->mutable_servers(0)->set_incarnation(incarnation);
  assignment->mutable_membership()->set_generation(1);
  v1::Member* member = assignment->mutable_membership()->add_members();  // It pushes below.
  member->set_incarnation(1);
  member->set_active(true);
  return desired;
}

// Waits until the job's table of `generation` is in force.
void WaitForTables(FakeScheduler& scheduler, uint64_t generation) {
  const auto held = scheduler.WaitForSync([&](const v1::SyncNodeRequest& sync) {
    return sync.tables_size() == 1 && sync.tables(0).routing_generation() == generation;
  });
  REQUIRE(held.has_value());
  REQUIRE_FALSE(held->tables(0).has_failure());
}

// The table of one job on server-7, which may not leave.
void HoldJob(FakeScheduler& scheduler) {
  scheduler.SetMayStop(false);
  REQUIRE(scheduler.WaitUntilHeld());
  scheduler.SetDesired(LoggedJob(1, 1));
  WaitForTables(scheduler, 1);
}

bool IsLeaving(const v1::SyncNodeRequest& sync) { return sync.leaving(); }

TEST_CASE("capstan-server: shards beyond its memory limit are refused with what is allowed",
          "[server]") {
  FakeScheduler scheduler;
  const std::string limit = GENERATE("--memory-limit=90", "--job-memory-limit=90b");
  const DaemonProcess server(
      kProgram, scheduler.address(),
      {"--name=server-7", "--data-dir=" + capstan::testing::TestPath("a"), limit});
  REQUIRE(scheduler.WaitForRegister(1).has_value());
  scheduler.SetDesired(LoggedJob(1, 1));  // Shards of 64 and 32 bytes.
  const auto refused = scheduler.WaitForSync([](const v1::SyncNodeRequest& sync) {
    return sync.tables_size() == 1 && sync.tables(0).has_failure();
  });
  INFO(server.log());
  REQUIRE(refused.has_value());
  const std::string text = refused->tables(0).failure().message();
  CHECK_THAT(text, Catch::Contains("table 0 shard 1: needs 32 bytes"));
  CHECK_THAT(text, Catch::Contains("holds 64 of the 90 that " + limit.substr(0, limit.find('='))));
}

TEST_CASE("capstan-server: told to stop, it serves on until its shards have moved", "[server]") {
  FakeScheduler scheduler;
  const DaemonProcess server(kProgram, scheduler.address(),
                             {"--name=server-7", "--data-dir=" + capstan::testing::TestPath("a")});
  HoldJob(scheduler);
  server->Signal(SIGTERM);
  REQUIRE(scheduler.WaitForSync(IsLeaving).has_value());
  const auto stub = v1::ParameterServer::NewStub(
      MakeChannel(scheduler.WaitForRegister(1)->address(), ChannelKind::kData));
  grpc::ClientContext context;
  SetDeadline(context, kProcessPatience);
  v1::PushResponse response;
  REQUIRE_OK(FromGrpcStatus(stub->Push(&context, PushOf(0, 0, -1, 1.0f, 1), &response)));
  scheduler.SetDesired({});
  REQUIRE(scheduler
              .WaitForSync([](const v1::SyncNodeRequest& sync) {
                return sync.leaving() && sync.generation_seen() == 2;
              })
              .has_value());
  scheduler.SetMayStop(true);
  CHECK(server->Wait(kProcessPatience) == ExitStatus{});
  CHECK_THAT(server.log(), Catch::Contains("nothing of a job is here any more: stops"));
}

TEST_CASE("capstan-server: a second signal, or the end of its grace, ends it with its shards",
          "[server]") {
  FakeScheduler scheduler;
  const bool second = GENERATE(true, false);
  const DaemonProcess server(kProgram, scheduler.address(),
                             {"--name=server-7", second ? "--grace=1h" : "--grace=50ms",
                              "--data-dir=" + capstan::testing::TestPath("b")});
  HoldJob(scheduler);
  server->Signal(SIGTERM);
  if (second) {  // A short grace may end before the scheduler has heard of the first.
    REQUIRE(scheduler.WaitForSync(IsLeaving).has_value());
    server->Signal(SIGINT);
  }
  CHECK(server->Wait(kProcessPatience) == ExitStatus{});
  CHECK_THAT(server.log(),
             Catch::Contains(second ? "stops at once and still holds shards of lenet-1: signal 2"
                                    : "stops after its grace of 50 ms and still holds shards of "
                                      "lenet-1: the scheduler did not say that it may"));
}

TEST_CASE("capstan-server: what it acknowledged with a log survives SIGKILL", "[server]") {
  const std::string folder = capstan::testing::TestPath("data");
  std::filesystem::remove_all(folder);
  FakeScheduler scheduler;
  const std::vector<std::string> flags = {"--name=server-7", "--data-dir=" + folder};
  {
    const DaemonProcess server(kProgram, scheduler.address(), flags);
    const auto registered = scheduler.WaitForRegister(1);
    REQUIRE(registered.has_value());
    CHECK(registered->stored().empty());
    scheduler.SetDesired(LoggedJob(1, 1));
    WaitForTables(scheduler, 1);
    const auto stub =
        v1::ParameterServer::NewStub(MakeChannel(registered->address(), ChannelKind::kData));
    for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
      grpc::ClientContext context;
      SetDeadline(context, kProcessPatience);
      v1::PushResponse response;
      const v1::PushRequest push = PushOf(0, 0, -1, 1.0f, sequence);
      REQUIRE_OK(FromGrpcStatus(stub->Push(&context, push, &response)));
    }
    server->Signal(SIGKILL);
    server->Wait(kProcessPatience);
  }
  scheduler.SetDesired({});
  const DaemonProcess server(kProgram, scheduler.address(), flags);
  const auto registered = scheduler.WaitForRegister(2);
  INFO(server.log());
  REQUIRE(registered.has_value());
  REQUIRE(registered->stored_size() == 2);
  CHECK(registered->stored(1).shard() == 1);
  CHECK(registered->stored(1).position() == 4);  // A membership and three pushes.
  v1::SyncNodeResponse desired = LoggedJob(2, 2);
  desired.mutable_tables(0)->set_log_term(2);
  scheduler.SetDesired(desired);
  WaitForTables(scheduler, 2);
  const auto stub =
      v1::ParameterServer::NewStub(MakeChannel(registered->address(), ChannelKind::kData));
  grpc::ClientContext context;
  SetDeadline(context, kProcessPatience);
  v1::PullRequest snapshot = SnapshotOf();
  snapshot.mutable_caller()->set_routing_generation(2);
  v1::PullResponse response;
  REQUIRE_OK(FromGrpcStatus(stub->Pull(&context, snapshot, &response)));
  CHECK(NumberIn(response) == -3.0f);
}

}  // namespace
}  // namespace capstan::server::server_process_test
