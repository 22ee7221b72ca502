// The real capstan-server process against a fake scheduler: how it starts, serves, stops and
// refuses.
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/net/channel.h"
#include "common/net/fake_scheduler.h"
#include "common/net/grpc_status.h"
#include "common/process/subprocess.h"
#include "common/testing/status_matchers.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/service/test_job.h"

namespace capstan::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

std::string TestFile(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
}

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A server daemon in a folder of its own.
class ServerProcess {
 public:
  explicit ServerProcess(const std::string& scheduler, std::vector<std::string> flags = {}) {
    std::filesystem::remove(TestFile("server/port"));
    std::filesystem::create_directories(TestFile("server"));
    SpawnOptions options;
    options.program = "server/capstan-server";
    options.args = {"--scheduler=" + scheduler, "--port-file=" + TestFile("server/port")};
    options.args.insert(options.args.end(), flags.begin(), flags.end());
    options.output_file = TestFile("server/log");
    auto spawned = Subprocess::Spawn(options);
    REQUIRE_OK(spawned);
    process = *std::move(spawned);
  }
  std::string log() const { return Contents(TestFile("server/log")); }

  std::unique_ptr<Subprocess> process;
};

TEST_CASE("capstan-server: registers what it is and serves the data plane there", "[server]") {
  capstan::testing::FakeScheduler scheduler;
  ServerProcess server(scheduler.address(), {"--name=server-7"});
  const auto registered = scheduler.WaitForRegister(1);
  INFO(server.log());
  REQUIRE(registered.has_value());
  CHECK(registered->role() == v1::SERVER);
  CHECK(registered->name() == "server-7");
  CHECK(registered->pid() == server.process->pid());
  CHECK(Contents(TestFile("server/port")) == registered->address() + "\n");

  const auto stub =
      v1::ParameterServer::NewStub(MakeChannel(registered->address(), ChannelKind::kData));
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::PushResponse response;
  CHECK_STATUS(FromGrpcStatus(stub->Push(&context, PushOf(0, 0, 0, 1.0f), &response)),
               absl::StatusCode::kNotFound, "this server holds 0 jobs");
}

TEST_CASE("capstan-server: SIGTERM and SIGINT say good-bye and exit with 0", "[server]") {
  capstan::testing::FakeScheduler scheduler;
  ServerProcess server(scheduler.address());
  REQUIRE(scheduler.WaitUntilHeld());
  server.process->Signal(GENERATE(SIGTERM, SIGINT));
  CHECK(server.process->Wait(kPatience) == ExitStatus{});
  CHECK(scheduler.WaitForSync([](const v1::SyncNodeRequest& sync) { return sync.leaving(); })
            .has_value());
}

TEST_CASE("capstan-server: a scheduler of another protocol ends it with 1 and the cause",
          "[server]") {
  capstan::testing::FakeScheduler scheduler;
  scheduler.FailRegister({absl::FailedPreconditionError("protocol version 1, expected 2")});
  ServerProcess server(scheduler.address());
  CHECK(server.process->Wait(kPatience) == ExitStatus{.code = 1, .signal = 0});
  CHECK_THAT(server.log(), Catch::Contains("protocol version 1, expected 2"));
}

TEST_CASE("capstan-server: a port in use ends it with 1 and the address", "[server]") {
  capstan::testing::FakeScheduler scheduler;
  ServerProcess server(scheduler.address(), {"--listen=" + scheduler.address()});
  CHECK(server.process->Wait(kPatience) == ExitStatus{.code = 1, .signal = 0});
  CHECK_THAT(server.log(), Catch::Contains(scheduler.address() + ": the port is in use"));
}

TEST_CASE("capstan-server: an unreachable scheduler is named, and does not keep it from stopping",
          "[server]") {
  ServerProcess server("127.0.0.1:1");
  const absl::Time give_up = absl::Now() + kPatience;
  while (server.log().find("no answer from the scheduler at 127.0.0.1:1") == std::string::npos) {
    REQUIRE(absl::Now() < give_up);
  }
  server.process->Signal(SIGTERM);
  CHECK(server.process->Wait(kPatience) == ExitStatus{});
}

// The whole test table on server-7, ASP, with a log; of life `incarnation`.
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
  return desired;
}

// Waits until the job's table of `generation` is in force.
void WaitForTables(capstan::testing::FakeScheduler& scheduler, uint64_t generation) {
  const auto held = scheduler.WaitForSync([&](const v1::SyncNodeRequest& sync) {
    return sync.tables_size() == 1 && sync.tables(0).routing_generation() == generation;
  });
  REQUIRE(held.has_value());
  REQUIRE_FALSE(held->tables(0).has_failure());
}

TEST_CASE("capstan-server: what it acknowledged with a log survives SIGKILL", "[server]") {
  const std::string folder = TestFile("data");
  std::filesystem::remove_all(folder);
  capstan::testing::FakeScheduler scheduler;
  const std::vector<std::string> flags = {"--name=server-7", "--data-dir=" + folder};
  {
    ServerProcess server(scheduler.address(), flags);
    const auto registered = scheduler.WaitForRegister(1);
    REQUIRE(registered.has_value());
    CHECK(registered->stored().empty());
    scheduler.SetDesired(LoggedJob(1, 1));
    WaitForTables(scheduler, 1);
    const auto stub =
        v1::ParameterServer::NewStub(MakeChannel(registered->address(), ChannelKind::kData));
    for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
      grpc::ClientContext context;
      SetDeadline(context, kPatience);
      v1::PushResponse response;
      const v1::PushRequest push = PushOf(0, 0, -1, 1.0f, sequence);
      REQUIRE_OK(FromGrpcStatus(stub->Push(&context, push, &response)));
    }
    server.process->Signal(SIGKILL);
    server.process->Wait(kPatience);
  }
  scheduler.SetDesired({});
  ServerProcess server(scheduler.address(), flags);
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
  SetDeadline(context, kPatience);
  v1::PullRequest snapshot = SnapshotOf();
  snapshot.mutable_caller()->set_routing_generation(2);
  v1::PullResponse response;
  REQUIRE_OK(FromGrpcStatus(stub->Pull(&context, snapshot, &response)));
  CHECK(NumberIn(response) == -3.0f);
}

}  // namespace
}  // namespace capstan::server
