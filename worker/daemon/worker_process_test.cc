// Tests how the real capstan-worker process starts, stops and refuses, with a fake scheduler.
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
#include "proto/worker.grpc.pb.h"

namespace capstan::worker_process_test {
namespace {

using testing::DaemonProcess;
using testing::kProcessPatience;

constexpr char kProgram[] = "worker/capstan-worker";

TEST_CASE("capstan-worker: registers what it is and where it is reached", "[worker]") {
  testing::FakeScheduler scheduler;
  const std::string work = testing::TestPath("work");
  const DaemonProcess worker(kProgram, scheduler.address(),
                             {"--name=worker-7", "--task-capacity=3", "--work-dir=" + work});
  const auto registered = scheduler.WaitForRegister(1);
  INFO(worker.log());
  REQUIRE(registered.has_value());
  CHECK(registered->role() == v1::WORKER);
  CHECK(registered->name() == "worker-7");
  CHECK(registered->task_capacity() == 3);
  CHECK(registered->pid() == worker->pid());
  CHECK_FALSE(registered->hostname().empty());
  CHECK(registered->has_devices());
  CHECK(worker.port_file() == registered->address() + "\n");
  CHECK(std::filesystem::is_directory(work));

  const auto stub = v1::Worker::NewStub(MakeChannel(registered->address(), ChannelKind::kControl));
  grpc::ClientContext context;
  SetDeadline(context, kProcessPatience);
  v1::ReadTaskLogRequest request;
  request.set_job_id("lenet-1");
  v1::ReadTaskLogResponse response;
  CHECK_STATUS(FromGrpcStatus(stub->ReadTaskLog(&context, request, &response)),
               absl::StatusCode::kNotFound, "task 0 of job lenet-1");
}

TEST_CASE("capstan-worker: SIGTERM and SIGINT say good-bye and exit with 0", "[worker]") {
  testing::CheckSaysGoodBye(kProgram, GENERATE(SIGTERM, SIGINT));
}

TEST_CASE("capstan-worker: a scheduler of another protocol ends it with 1 and the cause",
          "[worker]") {
  testing::CheckRefusedByScheduler(kProgram);
}

TEST_CASE("capstan-worker: a port in use ends it with 1 and the address", "[worker]") {
  testing::CheckPortInUse(kProgram);
}

TEST_CASE("capstan-worker: a task whose spec cannot be read ends with 2 and its path", "[worker]") {
  const DaemonProcess task(kProgram, "127.0.0.1:1", {"--task", "--spec=/proc/none/task.textproto"});
  CHECK(task->Wait(kProcessPatience) == ExitStatus{.code = 2, .signal = 0});
  CHECK_THAT(task.log(), Catch::Contains("/proc/none/task.textproto"));
}

TEST_CASE("capstan-worker: a task that is given a GPU which it cannot open says so", "[worker]") {
  testing::FakeScheduler scheduler;
  const DaemonProcess worker(kProgram, scheduler.address(),
                             {"--work-dir=" + testing::TestPath("gpu_work")});
  v1::SyncNodeResponse desired;
  v1::TaskAssignment& task = *desired.add_tasks();
  task.set_job_id("lenet-1");
  task.set_incarnation(7);
  task.mutable_spec()->mutable_model()->set_zoo("lenet");
  task.add_gpus(1000);
  scheduler.SetDesired(desired);
  const auto ended = scheduler.WaitForSync([](const v1::SyncNodeRequest& sync) {
    return sync.tasks_size() == 1 && sync.tasks(0).exited();
  });
  INFO(worker.log());
  REQUIRE(ended.has_value());
  CHECK(ended->tasks(0).exit_code() == 3);  // This scheduler accepts no reports of tasks.
  CHECK_THAT(ended->tasks(0).last_lines(), Catch::Contains("GPU 1000 cannot be opened"));
}

}  // namespace
}  // namespace capstan::worker_process_test
