#include "worker/daemon/task_table.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace capstan::worker::task_table_test {
namespace {

TaskName Task(const std::string& job, int rank, uint64_t incarnation = 1) {
  return {job, Rank(rank), Incarnation(incarnation)};
}

const TaskName kA = Task("lenet-1", 0);
const TaskName kB = Task("lenet-1", 1);

TaskActions TakeDesired(TaskTable& table, const std::vector<TaskName>& desired) {
  TaskActions actions;
  table.TakeDesired(desired, &actions);
  return actions;
}

TaskActions End(TaskTable& table, ProcessId process, TaskEnd end = {}) {
  TaskActions actions;
  table.ProcessEnded(process, std::move(end), &actions);
  return actions;
}

// Makes `task` the only desired one and returns its process.
ProcessId Start(TaskTable& table, const TaskName& task) {
  const TaskActions actions = TakeDesired(table, {task});
  REQUIRE(actions.start.size() == 1);
  return actions.start[0].process;
}

TEST_CASE("Task table: desired tasks are started once, in the order of their names", "[worker]") {
  TaskTable table;
  const TaskActions actions = TakeDesired(table, {kB, kA, kB});
  REQUIRE(actions.start.size() == 2);
  CHECK(actions.start[0].task == kA);
  CHECK(actions.start[1].task == kB);
  CHECK(actions.start[0].process != actions.start[1].process);
  CHECK(table.running_count() == 2);

  const TaskActions again = TakeDesired(table, {kA, kB});
  CHECK(again.start.empty());
  CHECK(again.terminate.empty());
}

TEST_CASE("Task table: a running task is reported as running", "[worker]") {
  TaskTable table;
  Start(table, kA);
  REQUIRE(table.Report().size() == 1);
  CHECK(table.Report()[0].task == kA);
  CHECK_FALSE(table.Report()[0].exited);
  CHECK(table.IsRunning(kA));
  CHECK_FALSE(table.IsRunning(kB));
}

TEST_CASE("Task table: an end is reported until the scheduler drops the task", "[worker]") {
  TaskTable table;
  const ProcessId process = Start(table, kA);
  const TaskEnd end{.exit_code = 0, .signal = 11, .last_lines = "oh no"};
  CHECK(End(table, process, end).report);
  CHECK_FALSE(table.IsRunning(kA));
  CHECK(table.running_count() == 0);
  for (int sync = 0; sync < 2; ++sync) {
    REQUIRE(table.Report().size() == 1);
    CHECK(table.Report()[0].exited);
    CHECK(table.Report()[0].end == end);
    CHECK(TakeDesired(table, {kA}).start.empty());  // An ended task is not started again.
  }
  TakeDesired(table, {});
  CHECK(table.Report().empty());
}

TEST_CASE("Task table: a restarted task is a new incarnation beside the ended one", "[worker]") {
  TaskTable table;
  End(table, Start(table, kA), {.exit_code = 9});
  const TaskName second = Task("lenet-1", 0, 2);
  const TaskActions actions = TakeDesired(table, {second});
  REQUIRE(actions.start.size() == 1);
  CHECK(actions.start[0].task == second);
  REQUIRE(table.Report().size() == 1);
  CHECK(table.Report()[0].task == second);
}

TEST_CASE("Task table: a task that left the desired state is terminated once", "[worker]") {
  TaskTable table;
  const ProcessId process = Start(table, kA);
  CHECK(TakeDesired(table, {}).terminate == std::vector<ProcessId>{process});
  CHECK(TakeDesired(table, {}).terminate.empty());
  CHECK(table.Report().size() == 1);  // It still runs.
  CHECK(End(table, process, {.exit_code = 0, .signal = 15}).report);
  CHECK(table.Report().empty());
}

TEST_CASE("Task table: a task that comes back while it stops is reported, not started",
          "[worker]") {
  TaskTable table;
  const ProcessId process = Start(table, kA);
  TakeDesired(table, {});
  CHECK(TakeDesired(table, {kA}).start.empty());
  End(table, process, {.exit_code = 0, .signal = 15});
  REQUIRE(table.Report().size() == 1);
  CHECK(table.Report()[0].end.signal == 15);
}

TEST_CASE("Task table: a new incarnation kills all and knows nothing of it", "[worker]") {
  TaskTable table;
  const ProcessId old = Start(table, kA);
  TaskActions actions;
  table.NewIncarnation(&actions);
  CHECK(actions.kill == std::vector<ProcessId>{old});
  CHECK(table.Report().empty());
  CHECK(table.running_count() == 1);

  // The scheduler may even use the same name again.
  const ProcessId fresh = Start(table, kA);
  CHECK(fresh != old);
  CHECK_FALSE(End(table, old, {.exit_code = 0, .signal = 9}).report);
  CHECK(table.IsRunning(kA));
  CHECK(table.running_count() == 1);
}

TEST_CASE("Task table: a stopping daemon ends its tasks, starts none, and reports the ends",
          "[worker]") {
  TaskTable table;
  const ProcessId process = Start(table, kA);
  TaskActions actions;
  table.StopAll(&actions);
  CHECK(actions.terminate == std::vector<ProcessId>{process});
  CHECK(TakeDesired(table, {kA, kB}).start.empty());
  End(table, process, {.exit_code = 0, .signal = 15});
  REQUIRE(table.Report().size() == 1);
  CHECK(table.Report()[0].exited);
}

TEST_CASE("Task table: the end of an unknown process changes nothing", "[worker]") {
  TaskTable table;
  Start(table, kA);
  CHECK_FALSE(End(table, ProcessId(99)).report);
  CHECK(table.IsRunning(kA));
}

}  // namespace
}  // namespace capstan::worker::task_table_test
