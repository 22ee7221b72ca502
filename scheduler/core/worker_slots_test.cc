#include "scheduler/core/worker_slots.h"

#include <catch2/catch.hpp>

namespace capstan::scheduler {
namespace {

TaskKey Key(int rank, uint64_t incarnation = 1) {
  return {"job-1", Rank(rank), Incarnation(incarnation)};
}
TaskState Runs(const TaskKey& key) { return {.task = key, .exited = false, .exit = {}}; }
TaskState Exited(const TaskKey& key) { return {.task = key, .exited = true, .exit = {}}; }

TEST_CASE("Worker slots: tasks go where most slots are free", "[scheduler][core]") {
  WorkerSlots slots;
  CHECK_FALSE(slots.Choose().has_value());
  slots.AddNode("worker-1", 1);
  slots.AddNode("worker-2", 2);
  CHECK(slots.free() == 3);
  CHECK(slots.Choose() == "worker-2");
  slots.Take("worker-2", Key(0));
  CHECK(slots.Choose() == "worker-1");
  slots.Take("worker-1", Key(1));
  CHECK(slots.Choose() == "worker-2");
  slots.Take("worker-2", Key(2));
  CHECK_FALSE(slots.Choose().has_value());
  CHECK(slots.Desired("worker-2") == std::vector<TaskKey>{Key(0), Key(2)});
}

TEST_CASE("Worker slots: a released slot is free once the daemon says that the process is gone",
          "[scheduler][core]") {
  WorkerSlots slots;
  slots.AddNode("worker-1", 1);
  slots.Take("worker-1", Key(0));
  slots.Release("worker-1", Key(0));
  CHECK(slots.Desired("worker-1").empty());
  CHECK(slots.free() == 0);
  SECTION("it still runs") {
    const TaskState running[] = {Runs(Key(0))};
    slots.Report("worker-1", running, /*current=*/true);
    CHECK(slots.free() == 0);
  }
  SECTION("it exited") {
    const TaskState exited[] = {Exited(Key(0))};
    slots.Report("worker-1", exited, /*current=*/false);
    CHECK(slots.free() == 1);
  }
  SECTION("a daemon that knows of the release does not list it") {
    slots.Report("worker-1", {}, /*current=*/false);
    CHECK(slots.free() == 0);
    slots.Report("worker-1", {}, /*current=*/true);
    CHECK(slots.free() == 1);
  }
}

TEST_CASE("Worker slots: processes that nobody asked for take slots until they are gone",
          "[scheduler][core]") {
  WorkerSlots slots;
  slots.AddNode("worker-1", 2);
  const TaskState stray[] = {Runs(Key(3, 77))};
  slots.Report("worker-1", stray, /*current=*/true);
  CHECK(slots.free() == 1);
  CHECK(slots.Taken("worker-1") == 1);
  CHECK(slots.Desired("worker-1").empty());
  slots.Report("worker-1", {}, /*current=*/true);
  CHECK(slots.free() == 2);
}

TEST_CASE("Worker slots: closed and removed daemons offer nothing", "[scheduler][core]") {
  WorkerSlots slots;
  slots.AddNode("worker-1", 2);
  slots.AddNode("worker-2", 1);
  slots.CloseNode("worker-1");
  CHECK(slots.free() == 1);
  CHECK(slots.capacity() == 1);
  CHECK(slots.Choose() == "worker-2");
  slots.RemoveNode("worker-2");
  CHECK_FALSE(slots.Choose().has_value());
}

}  // namespace
}  // namespace capstan::scheduler
