#include "scheduler/core/nodes/worker_slots.h"

#include <catch2/catch.hpp>

namespace capstan::scheduler::worker_slots_test {
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
  CHECK(slots.Choose()->node == "worker-2");
  slots.Take({"worker-2", {}}, Key(0));
  CHECK(slots.Choose()->node == "worker-1");
  slots.Take({"worker-1", {}}, Key(1));
  CHECK(slots.Choose()->node == "worker-2");
  slots.Take({"worker-2", {}}, Key(2));
  CHECK_FALSE(slots.Choose().has_value());
  CHECK(slots.Desired("worker-2") == std::vector<TaskKey>{Key(0), Key(2)});
}

TEST_CASE("Worker slots: a released slot is free once the daemon says that the process is gone",
          "[scheduler][core]") {
  WorkerSlots slots;
  slots.AddNode("worker-1", 1);
  slots.Take({"worker-1", {}}, Key(0));
  CHECK(slots.Runs("job-1"));
  CHECK_FALSE(slots.Runs("job-2"));
  slots.Release("worker-1", Key(0));
  CHECK(slots.Desired("worker-1").empty());
  CHECK(slots.free() == 0);
  CHECK(slots.Runs("job-1"));
  SECTION("it still runs") {
    const TaskState running[] = {Runs(Key(0))};
    slots.Report("worker-1", running, /*current=*/true);
    CHECK(slots.free() == 0);
  }
  SECTION("it exited") {
    const TaskState exited[] = {Exited(Key(0))};
    slots.Report("worker-1", exited, /*current=*/false);
    CHECK(slots.free() == 1);
    CHECK_FALSE(slots.Runs("job-1"));
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
  CHECK(slots.Choose()->node == "worker-2");
  slots.RemoveNode("worker-2");
  CHECK_FALSE(slots.Choose().has_value());
}

using Kind = DeviceNeed::Kind;
using Place = WorkerSlots::Place;
constexpr DeviceNeed kOneGpu = {.kind = Kind::kGpu, .gpus = 1};
constexpr DeviceNeed kTwoGpus = {.kind = Kind::kGpu, .gpus = 2};
constexpr DeviceNeed kAny = {.kind = Kind::kAny, .gpus = 1};

Devices Gpus(std::initializer_list<int> indices) {
  Devices devices;
  for (const int index : indices) devices.gpus.push_back({.index = index, .name = "fake"});
  return devices;
}

TEST_CASE("Worker slots: each task gets the lowest free GPUs of its worker for itself",
          "[scheduler][core]") {
  WorkerSlots slots;
  slots.AddNode("worker-1", 8);
  slots.AddNode("worker-2", 3, Gpus({3, 0, 1}));
  CHECK(slots.free(kOneGpu) == 3);
  CHECK(slots.free(kTwoGpus) == 1);
  CHECK(slots.capacity(kOneGpu) == 3);
  CHECK(slots.Choose(kTwoGpus) == Place{"worker-2", {0, 1}});
  slots.Take(*slots.Choose(kTwoGpus), Key(0));
  CHECK(slots.GpusOf("worker-2", Key(0)) == std::vector<int>{0, 1});
  CHECK(slots.free(kTwoGpus) == 0);
  CHECK_FALSE(slots.Choose(kTwoGpus).has_value());
  CHECK(slots.Choose(kOneGpu) == Place{"worker-2", {3}});
  slots.Take(*slots.Choose(kOneGpu), Key(1));
  CHECK_FALSE(slots.Choose(kOneGpu).has_value());
  CHECK(slots.GpusTaken("worker-2") == std::vector<int>{0, 1, 3});
  CHECK(slots.free() == 9);
  CHECK(slots.free(kAny) == 9);
}

TEST_CASE("Worker slots: a task may want one GPU by its index", "[scheduler][core]") {
  WorkerSlots slots;
  slots.AddNode("worker-1", 4, Gpus({0}));
  slots.AddNode("worker-2", 2, Gpus({0, 1}));
  const DeviceNeed second = {.kind = Kind::kGpu, .gpus = 1, .index = 1};
  CHECK(slots.free(second) == 1);
  CHECK(slots.Choose(second) == Place{"worker-2", {1}});
  slots.Take(*slots.Choose(second), Key(0));
  CHECK_FALSE(slots.Choose(second).has_value());
  CHECK(slots.capacity(second) == 1);
  CHECK(slots.Choose(kOneGpu) == Place{"worker-1", {0}});
}

TEST_CASE("Worker slots: auto takes a GPU where one is free, else the CPU", "[scheduler][core]") {
  WorkerSlots slots;
  slots.AddNode("worker-1", 9);
  slots.AddNode("worker-2", 2, Gpus({0}));
  CHECK(slots.Choose(kAny) == Place{"worker-2", {0}});
  slots.Take(*slots.Choose(kAny), Key(0));
  CHECK(slots.Choose(kAny) == Place{"worker-1", {}});
}

TEST_CASE("Worker slots: without GPUs a task goes to a worker without, if slots are equal",
          "[scheduler][core]") {
  WorkerSlots slots;
  slots.AddNode("worker-1", 1, Gpus({0}));
  slots.AddNode("worker-2", 1);
  CHECK(slots.Choose() == Place{"worker-2", {}});
}

TEST_CASE("Worker slots: a GPU is free once the daemon says that its task is gone",
          "[scheduler][core]") {
  WorkerSlots slots;
  slots.AddNode("worker-1", 2, Gpus({0}));
  slots.Take(*slots.Choose(kOneGpu), Key(0));
  slots.Release("worker-1", Key(0));
  const TaskState running[] = {Runs(Key(0))};
  slots.Report("worker-1", running, /*current=*/true);
  CHECK_FALSE(slots.Choose(kOneGpu).has_value());
  SECTION("its process exited") {
    const TaskState exited[] = {Exited(Key(0))};
    slots.Report("worker-1", exited, /*current=*/false);
    CHECK(slots.Choose(kOneGpu) == Place{"worker-1", {0}});
  }
  SECTION("its daemon started anew") {
    slots.RemoveNode("worker-1");
    slots.AddNode("worker-1", 2, Gpus({0}));
    CHECK(slots.Choose(kOneGpu) == Place{"worker-1", {0}});
  }
}

TEST_CASE("Worker slots: a lost GPU is given to nobody until its daemon starts anew",
          "[scheduler][core]") {
  WorkerSlots slots;
  slots.AddNode("worker-1", 2, Gpus({0, 1}));
  slots.Take(*slots.Choose(kOneGpu), Key(0));
  slots.LoseGpus("worker-1", Key(0));
  slots.Release("worker-1", Key(0));
  slots.Report("worker-1", {}, /*current=*/true);
  CHECK(slots.GpusTaken("worker-1").empty());
  CHECK(slots.GpusLost("worker-1") == std::vector<int>{0});
  CHECK(slots.Choose(kOneGpu) == Place{"worker-1", {1}});
  CHECK(slots.capacity(kOneGpu) == 1);
  slots.AddNode("worker-1", 2, Gpus({0, 1}));
  CHECK(slots.capacity(kOneGpu) == 2);
}

TEST_CASE("Worker slots: of a task's GPUs those that it names are lost, or all of them",
          "[scheduler][core]") {
  WorkerSlots slots;
  slots.AddNode("worker-1", 2, Gpus({0, 1, 2, 3}));
  slots.Take(*slots.Choose(kTwoGpus), Key(0));
  slots.Take(*slots.Choose(kTwoGpus), Key(1));
  const auto lost = [&slots] { return slots.GpusLost("worker-1"); };
  SECTION("one of two") {
    slots.LoseGpus("worker-1", Key(0), {1});
    CHECK(lost() == std::vector<int>{1});
    slots.Release("worker-1", Key(0));
    slots.Report("worker-1", {}, /*current=*/true);
    CHECK(slots.Choose(kOneGpu) == Place{"worker-1", {0}});
  }
  SECTION("others' are not taken from them") {
    slots.LoseGpus("worker-1", Key(0), {-1, 0, 2, 64});
    CHECK(lost() == std::vector<int>{0});
  }
  SECTION("it names none") {
    slots.LoseGpus("worker-1", Key(1));
    CHECK(lost() == std::vector<int>{2, 3});
  }
  SECTION("it names none of its own") {
    slots.LoseGpus("worker-1", Key(1), {0});
    CHECK(lost() == std::vector<int>{2, 3});
  }
}

TEST_CASE("Worker slots: GPUs that no task can use count for none, and say why",
          "[scheduler][core]") {
  WorkerSlots slots;
  CHECK(slots.WhyNoGpus(kOneGpu).empty());
  Devices devices = Gpus({0});
  devices.unusable = "no CUDA backend";
  slots.AddNode("worker-1", 1, devices);
  slots.AddNode("worker-2", 1);
  CHECK(slots.capacity(kOneGpu) == 0);
  CHECK(slots.WhyNoGpus(kOneGpu) == "worker-1: no CUDA backend; worker-2: no GPU");
  slots.AddNode("worker-2", 1, Gpus({0}));
  slots.AddNode("worker-3", 1, Gpus({2, 3}));
  const DeviceNeed fifth = {.kind = Kind::kGpu, .gpus = 1, .index = 5};
  CHECK(slots.WhyNoGpus(fifth) ==
        "worker-1: no CUDA backend; worker-2: has 1 GPU and not that one; worker-3: has 2 GPUs "
        "and not that one");
  slots.Take({"worker-2", {0}}, Key(0));
  slots.LoseGpus("worker-2", Key(0));
  slots.AddNode("worker-4", 1);
  slots.AddNode("worker-5", 1);
  CHECK(slots.WhyNoGpus({.kind = Kind::kGpu, .gpus = 4}) ==
        "worker-1: no CUDA backend; worker-2: lost GPU 0; worker-3: has 2 GPUs; and 2 more");
}

}  // namespace
}  // namespace capstan::scheduler::worker_slots_test
