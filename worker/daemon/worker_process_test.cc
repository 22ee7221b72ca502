// The real capstan-worker process against a fake scheduler: how it starts, stops and refuses.
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
#include "proto/worker.grpc.pb.h"

namespace capstan {
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

// A worker daemon in a folder of its own.
class WorkerProcess {
 public:
  explicit WorkerProcess(const std::string& scheduler, std::vector<std::string> flags = {}) {
    std::filesystem::remove_all(TestFile("worker"));
    std::filesystem::create_directories(TestFile("worker"));
    SpawnOptions options;
    options.program = "worker/capstan-worker";
    options.args = {"--scheduler=" + scheduler, "--work-dir=" + TestFile("worker/work"),
                    "--port-file=" + TestFile("worker/port")};
    options.args.insert(options.args.end(), flags.begin(), flags.end());
    options.output_file = TestFile("worker/log");
    auto spawned = Subprocess::Spawn(options);
    REQUIRE_OK(spawned);
    process = *std::move(spawned);
  }
  std::string log() const { return Contents(TestFile("worker/log")); }

  std::unique_ptr<Subprocess> process;
};

TEST_CASE("capstan-worker: registers what it is and where it is reached", "[worker]") {
  testing::FakeScheduler scheduler;
  WorkerProcess worker(scheduler.address(), {"--name=worker-7", "--task-capacity=3"});
  const auto registered = scheduler.WaitForRegister(1);
  INFO(worker.log());
  REQUIRE(registered.has_value());
  CHECK(registered->role() == v1::WORKER);
  CHECK(registered->name() == "worker-7");
  CHECK(registered->task_capacity() == 3);
  CHECK(registered->pid() == worker.process->pid());
  CHECK_FALSE(registered->hostname().empty());
  CHECK(Contents(TestFile("worker/port")) == registered->address() + "\n");
  CHECK(std::filesystem::is_directory(TestFile("worker/work")));

  const auto stub = v1::Worker::NewStub(MakeChannel(registered->address(), ChannelKind::kControl));
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::ReadTaskLogRequest request;
  request.set_job_id("lenet-1");
  v1::ReadTaskLogResponse response;
  CHECK_STATUS(FromGrpcStatus(stub->ReadTaskLog(&context, request, &response)),
               absl::StatusCode::kNotFound, "task 0 of job lenet-1");
}

TEST_CASE("capstan-worker: SIGTERM and SIGINT say good-bye and exit with 0", "[worker]") {
  testing::FakeScheduler scheduler;
  WorkerProcess worker(scheduler.address());
  REQUIRE(scheduler.WaitUntilHeld());
  worker.process->Signal(GENERATE(SIGTERM, SIGINT));
  CHECK(worker.process->Wait(kPatience) == ExitStatus{});
  CHECK(scheduler.WaitForSync([](const v1::SyncNodeRequest& sync) { return sync.leaving(); })
            .has_value());
}

TEST_CASE("capstan-worker: a scheduler of another protocol ends it with 1 and the cause",
          "[worker]") {
  testing::FakeScheduler scheduler;
  scheduler.FailRegister({absl::FailedPreconditionError("protocol version 1, expected 2")});
  WorkerProcess worker(scheduler.address());
  CHECK(worker.process->Wait(kPatience) == ExitStatus{.code = 1, .signal = 0});
  CHECK_THAT(worker.log(), Catch::Contains("protocol version 1, expected 2"));
}

TEST_CASE("capstan-worker: a port in use ends it with 1 and the address", "[worker]") {
  testing::FakeScheduler scheduler;
  WorkerProcess worker(scheduler.address(), {"--listen=" + scheduler.address()});
  CHECK(worker.process->Wait(kPatience) == ExitStatus{.code = 1, .signal = 0});
  CHECK_THAT(worker.log(), Catch::Contains(scheduler.address() + ": the port is in use"));
}

TEST_CASE("capstan-worker: a task whose spec cannot be read ends with 2 and its path", "[worker]") {
  WorkerProcess task("127.0.0.1:1", {"--task", "--spec=/proc/none/task.textproto"});
  CHECK(task.process->Wait(kPatience) == ExitStatus{.code = 2, .signal = 0});
  CHECK_THAT(task.log(), Catch::Contains("/proc/none/task.textproto"));
}

}  // namespace
}  // namespace capstan
