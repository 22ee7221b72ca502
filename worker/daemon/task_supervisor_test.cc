#include "worker/daemon/task_supervisor.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "common/net/node/node_agent.h"
#include "common/net/testing/fake_scheduler.h"
#include "common/testing/status_matchers.h"

namespace capstan::worker::task_supervisor_test {
namespace {

std::string TestFolder() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/task_supervisor";
}

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A worker daemon without its main: a supervisor connected to a fake scheduler. A task is a shell
// script.
class Worker {
 public:
  explicit Worker(const std::string& script) {
    std::filesystem::remove_all(TestFolder());
    std::filesystem::create_directories(TestFolder());
    const std::string program = TestFolder() + "/task.sh";
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    TaskSupervisor::Options options;
    options.work_dir = TestFolder() + "/tasks";
    options.scheduler = scheduler.address();
    options.program = program;
    options.run_programs = true;
    options.ended_tasks_kept = 2;
    options.devices.unusable = "no CUDA driver";
    options.on_change = [this] { agent->Wake(); };
    supervisor = std::make_unique<TaskSupervisor>(options);
    NodeAgent::Options agent_options;
    agent_options.scheduler = scheduler.address();
    agent_options.self.set_role(v1::WORKER);
    agent = std::make_unique<NodeAgent>(agent_options, supervisor.get());
    REQUIRE_OK(supervisor->Start());
    agent->Start();
  }
  ~Worker() {
    agent->Stop();
    supervisor.reset();  // This ends the thread that wakes the agent.
  }

  // Makes the scheduler want task 0 of a job in this incarnation, and nothing else.
  void Want(const std::string& job, uint64_t incarnation, int threads = 0) {
    v1::SyncNodeResponse desired;
    v1::TaskAssignment& task = *desired.add_tasks();
    task.set_job_id(job);
    task.set_incarnation(incarnation);
    if (threads > 0) task.mutable_spec()->mutable_resources()->set_threads(threads);
    scheduler.SetDesired(desired);
  }
  // Makes it want task 0 of job "program" with this program, and returns the task's log at its end.
  std::string LogOf(const v1::Program& program, uint64_t incarnation) {
    v1::SyncNodeResponse desired;
    v1::TaskAssignment& task = *desired.add_tasks();
    task.set_job_id("program");
    task.set_incarnation(incarnation);
    *task.mutable_spec()->mutable_program() = program;
    scheduler.SetDesired(desired);
    REQUIRE(WaitForTask(incarnation, true).has_value());
    return Contents(FileOf(absl::StrCat("program/0-", incarnation), "task.log"));
  }
  void WantNothing() { scheduler.SetDesired({}); }

  // Waits for a report of one task that has ended (or runs).
  std::optional<v1::TaskState> WaitForTask(uint64_t incarnation, bool exited) {
    const auto request = scheduler.WaitForSync([&](const v1::SyncNodeRequest& sync) {
      return sync.tasks_size() == 1 && sync.tasks(0).incarnation() == incarnation &&
             sync.tasks(0).exited() == exited;
    });
    if (!request) return std::nullopt;
    return request->tasks(0);
  }
  std::string FileOf(const std::string& task, const std::string& name) {
    return TestFolder() + "/tasks/" + task + "/" + name;
  }

  testing::FakeScheduler scheduler;
  std::unique_ptr<TaskSupervisor> supervisor;
  std::unique_ptr<NodeAgent> agent;
};

constexpr char kForever[] = "exec sleep 1000";

TEST_CASE("Task supervisor: a task gets its spec, scheduler, threads and log", "[worker]") {
  Worker worker(R"(echo "$@"; echo "threads $OMP_NUM_THREADS" >&2)");
  worker.Want("lenet-1", 7, 3);
  CHECK(worker.scheduler.WaitForRegister(1)->devices().unusable() == "no CUDA driver");
  const auto task = worker.WaitForTask(7, true);
  REQUIRE(task.has_value());
  CHECK(task->job_id() == "lenet-1");
  CHECK(task->exit_code() == 0);
  CHECK(task->last_lines().empty());
  const std::string spec = worker.FileOf("lenet-1/0-7", "task.textproto");
  CHECK(Contents(worker.FileOf("lenet-1/0-7", "task.log")) ==
        "--task --scheduler=" + worker.scheduler.address() + " --spec=" + spec +
            " --log-format=text\nthreads 3\n");
  REQUIRE_OK_AND_ASSIGN(const v1::TaskAssignment assignment, ReadTaskSpec(spec));
  CHECK(assignment.incarnation() == 7);
}

TEST_CASE("Task supervisor: tasks share a folder for plans, the daemon's if it names one",
          "[worker]") {
  const auto folder_of = [](uint64_t incarnation) {
    Worker worker(R"(echo "$CAPSTAN_CUDA_PLANS")");
    worker.Want("plans", incarnation);
    REQUIRE(worker.WaitForTask(incarnation, true).has_value());
    return Contents(worker.FileOf(absl::StrCat("plans/0-", incarnation), "task.log"));
  };
  CHECK(folder_of(21) == TestFolder() + "/tasks/.cuda-plans\n");
  REQUIRE(setenv("CAPSTAN_CUDA_PLANS", "/var/plans", 1) == 0);
  CHECK(folder_of(22) == "/var/plans\n");
  REQUIRE(unsetenv("CAPSTAN_CUDA_PLANS") == 0);
}

TEST_CASE("Task supervisor: a task inherits no secret of its daemon", "[worker]") {
  REQUIRE(setenv("AWS_SECRET_ACCESS_KEY", "hunter2", 1) == 0);
  REQUIRE(setenv("CUDA_VISIBLE_DEVICES", "0,1", 1) == 0);
  Worker worker("env");
  worker.Want("lenet-1", 23);
  REQUIRE(worker.WaitForTask(23, true).has_value());
  const std::string environment = Contents(worker.FileOf("lenet-1/0-23", "task.log"));
  CHECK(environment.find("hunter2") == std::string::npos);
  CHECK(environment.find("CUDA_VISIBLE_DEVICES=0,1\n") != std::string::npos);
  CHECK(environment.find("PATH=") != std::string::npos);
  REQUIRE(unsetenv("AWS_SECRET_ACCESS_KEY") == 0);
  REQUIRE(unsetenv("CUDA_VISIBLE_DEVICES") == 0);
}

TEST_CASE("Task supervisor: a program is run whatever its path, or found on PATH", "[worker]") {
  Worker worker("true");
  std::filesystem::create_directory_symlink("/bin", TestFolder() + "/a=b");
  std::filesystem::create_directory_symlink("/bin", TestFolder() + "/-bin");
  uint64_t incarnation = 0;
  for (const std::string& command : {std::string("echo"), TestFolder() + "/a=b/echo",
                                     std::string("a=b/echo"), std::string("-bin/echo")}) {
    INFO(command);
    v1::Program program;
    program.add_command(command);
    program.add_command("x=1  2");
    program.add_command("$0");
    program.set_directory(TestFolder());
    CHECK(worker.LogOf(program, ++incarnation) == "x=1  2 $0\n");
  }
}

TEST_CASE("Task supervisor: a program of the name - is looked for, and no option", "[worker]") {
  Worker worker("true");
  v1::Program program;
  program.add_command("-");
  program.add_command("echo");
  const std::string log = worker.LogOf(program, 1);
  CHECK_THAT(log, Catch::Contains("-: not found"));
}

TEST_CASE("Task supervisor: a job's variables replace defaults, but not what a task has",
          "[worker]") {
  Worker worker("true");
  v1::Program program;
  program.add_command("env");
  (*program.mutable_environment())["OMP_NUM_THREADS"] = "7";
  (*program.mutable_environment())["RANK"] = "9";
  const std::string environment = worker.LogOf(program, 1);
  CHECK_THAT(environment, Catch::Contains("OMP_NUM_THREADS=7\n"));
  CHECK_THAT(environment, !Catch::Contains("OMP_NUM_THREADS=1\n"));
  CHECK_THAT(environment, Catch::Contains("\nRANK=0\n"));
  CHECK_THAT(environment, !Catch::Contains("RANK=9\n"));
}

TEST_CASE("Task supervisor: before a task starts, the oldest ended ones lose their files",
          "[worker]") {
  Worker worker("true");
  for (uint64_t incarnation = 1; incarnation <= 4; ++incarnation) {
    worker.Want("lenet-1", incarnation);
    REQUIRE(worker.WaitForTask(incarnation, true).has_value());
  }
  CHECK_FALSE(std::filesystem::exists(worker.FileOf("lenet-1/0-1", "task.log")));
  for (const char* kept : {"lenet-1/0-2", "lenet-1/0-3", "lenet-1/0-4"}) {
    CHECK(std::filesystem::exists(worker.FileOf(kept, "task.log")));
  }
}

TEST_CASE("Task supervisor: a failed task is reported with code and last lines", "[worker]") {
  Worker worker("for i in $(seq 100); do echo line $i; done; exit 42");
  worker.Want("lenet-1", 1);
  const auto task = worker.WaitForTask(1, true);
  REQUIRE(task.has_value());
  CHECK(task->exit_code() == 42);
  CHECK(task->signal() == 0);
  CHECK_THAT(task->last_lines(), Catch::StartsWith("line 81\n") && Catch::EndsWith("line 100"));
}

TEST_CASE("Task supervisor: a crashed task is reported with its signal", "[worker]") {
  Worker worker("echo about to crash; kill -ABRT $$");
  worker.Want("lenet-1", 1);
  const auto task = worker.WaitForTask(1, true);
  REQUIRE(task.has_value());
  CHECK(task->signal() == SIGABRT);
  CHECK(task->last_lines() == "about to crash");
}

TEST_CASE("Task supervisor: a task that is no longer wanted is stopped, its log kept", "[worker]") {
  Worker worker(std::string("echo started; ") + kForever);
  worker.Want("lenet-1", 1);
  REQUIRE(worker.WaitForTask(1, false).has_value());
  CHECK(worker.supervisor->IsRunning({"lenet-1", Rank(0), Incarnation(1)}));
  const size_t syncs = worker.scheduler.sync_count();
  worker.WantNothing();
  const auto gone = worker.scheduler.WaitForSync([&](const v1::SyncNodeRequest& sync) {
    return sync.generation_seen() == 2 && sync.tasks_size() == 0;
  });
  REQUIRE(gone.has_value());
  CHECK(worker.scheduler.sync_count() > syncs);
  CHECK_FALSE(worker.supervisor->IsRunning({"lenet-1", Rank(0), Incarnation(1)}));
  CHECK(std::filesystem::exists(worker.FileOf("lenet-1/0-1", "task.log")));
}

TEST_CASE("Task supervisor: an end is repeated until the scheduler drops the task", "[worker]") {
  Worker worker("exit 9");
  worker.Want("lenet-1", 1);
  REQUIRE(worker.WaitForTask(1, true).has_value());
  worker.agent->Wake();
  const auto repeated = worker.scheduler.WaitForSync([](const v1::SyncNodeRequest& sync) {
    return sync.generation_seen() == 1 && sync.tasks_size() == 1 && sync.tasks(0).exited();
  });
  REQUIRE(repeated.has_value());
  worker.WantNothing();
  REQUIRE(worker.scheduler
              .WaitForSync([](const v1::SyncNodeRequest& sync) {
                return sync.generation_seen() == 2 && sync.tasks_size() == 0;
              })
              .has_value());
}

TEST_CASE("Task supervisor: a new incarnation of the daemon kills all tasks", "[worker]") {
  Worker worker(kForever);
  worker.Want("lenet-1", 1);
  REQUIRE(worker.WaitForTask(1, false).has_value());
  worker.scheduler.FailSync({absl::AbortedError("the lease ran out")});
  REQUIRE(worker.scheduler.WaitForRegister(2).has_value());
  worker.WantNothing();
  REQUIRE(worker.scheduler
              .WaitForSync([](const v1::SyncNodeRequest& sync) {
                return sync.incarnation() == 2 && sync.generation_seen() >= 2 &&
                       sync.tasks_size() == 0;
              })
              .has_value());
  CHECK(worker.supervisor->StopTasks() == 0);
}

TEST_CASE("Task supervisor: a stopping daemon ends its tasks and reports them", "[worker]") {
  Worker worker(kForever);
  worker.Want("lenet-1", 1);
  REQUIRE(worker.WaitForTask(1, false).has_value());
  CHECK(worker.supervisor->StopTasks() == 0);
  const auto task = worker.WaitForTask(1, true);
  REQUIRE(task.has_value());
  CHECK(task->signal() == SIGTERM);
}

TEST_CASE("Task supervisor: what cannot be started is reported as ended with the cause",
          "[worker]") {
  Worker worker("exit 0");
  SECTION("a job id that is no plain name") {
    worker.Want("../../etc", 1);
    const auto task = worker.WaitForTask(1, true);
    REQUIRE(task.has_value());
    CHECK(task->exit_code() == 127);
    CHECK_THAT(task->last_lines(), Catch::Contains("job_id"));
  }
  SECTION("a program that is gone") {
    std::filesystem::remove(TestFolder() + "/task.sh");
    worker.Want("lenet-1", 1);
    const auto task = worker.WaitForTask(1, true);
    REQUIRE(task.has_value());
    CHECK(task->exit_code() == 127);
    CHECK_THAT(task->last_lines(), Catch::Contains("task.sh: No such file"));
  }
}

}  // namespace
}  // namespace capstan::worker::task_supervisor_test
