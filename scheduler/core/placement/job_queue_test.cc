#include "scheduler/core/placement/job_queue.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace capstan::scheduler::job_queue_test {
namespace {

// Returns the supplies for jobs that need no GPU.
Supplies Cpu(const Supply& supply) { return {{DeviceNeed(), supply}}; }

TEST_CASE("Job queue: a job starts when all its workers and servers are there",
          "[scheduler][core]") {
  JobQueue queue;
  REQUIRE_OK(queue.Push("a-1", 4, 2));
  CHECK_FALSE(queue.Startable(Cpu({.slots_free = 3, .slots = 4, .servers = 2})).has_value());
  CHECK_FALSE(queue.Startable(Cpu({.slots_free = 4, .slots = 4, .servers = 1})).has_value());
  CHECK(queue.Startable(Cpu({.slots_free = 4, .slots = 4, .servers = 2})) == "a-1");
}

TEST_CASE("Job queue: a small job does not overtake a large one", "[scheduler][core]") {
  JobQueue queue;
  REQUIRE_OK(queue.Push("large-1", 8, 0));
  REQUIRE_OK(queue.Push("small-2", 1, 0));
  const Supplies supply = Cpu({.slots_free = 2, .slots = 8, .servers = 1});
  CHECK(queue.WhyTooSmall("large-1", supply).empty());
  CHECK_FALSE(queue.Startable(supply).has_value());
  CHECK(queue.WhyWaiting("small-2", supply) == "waits behind large-1");
  queue.Remove("large-1");
  CHECK(queue.Startable(supply) == "small-2");
}

TEST_CASE("Job queue: it says in a sentence what is missing", "[scheduler][core]") {
  JobQueue queue;
  REQUIRE_OK(queue.Push("a-1", 4, 2));
  REQUIRE_OK(queue.Push("b-2", 1, 0));
  REQUIRE_OK(queue.Push("c-3", 1, 0));
  CHECK(queue.WhyWaiting("a-1", Cpu({.slots_free = 2, .slots = 2, .servers = 2})) ==
        "needs 4 workers, 2 are free of 2 alive; waits until more join, and jobs behind it go on");
  CHECK(queue.WhyWaiting("a-1", Cpu({.slots_free = 4, .slots = 4, .servers = 1})) ==
        "needs 2 servers, 1 is alive; waits until more join, and jobs behind it go on");
  CHECK(queue.WhyWaiting("a-1", Cpu({.slots_free = 1, .slots = 4, .servers = 0})) ==
        "needs 4 workers, 1 is free of 4 alive; needs 2 servers, 0 are alive; waits until more "
        "join, and jobs behind it go on");
  CHECK(queue.WhyWaiting("c-3", Cpu({.slots_free = 0, .slots = 4, .servers = 2})) ==
        "waits behind a-1 and 1 more");
}

TEST_CASE("Job queue: a job that no cluster as it is could run holds nobody up (issue 21)",
          "[scheduler][core]") {
  JobQueue queue;
  REQUIRE_OK(queue.Push("huge-1", 1000, 0));
  REQUIRE_OK(queue.Push("fits-2", 2, 0));
  REQUIRE_OK(queue.Push("many-servers-3", 1, 9));
  const Supplies now = Cpu({.slots_free = 2, .slots = 2, .servers = 1});
  CHECK(queue.WhyTooSmall("huge-1", now) ==
        "needs 1000 workers, 2 are free of 2 alive; waits until more join, and jobs behind it go "
        "on");
  CHECK(queue.WhyTooSmall("fits-2", now).empty());
  CHECK_FALSE(queue.WhyTooSmall("many-servers-3", now).empty());
  CHECK(queue.WhyTooSmall("gone-4", now).empty());
  CHECK(queue.Startable(now) == "fits-2");
  CHECK(queue.WhyWaiting("fits-2", now) == "is about to start");
  // The job starts when more workers have joined.
  const Supplies later = Cpu({.slots_free = 900, .slots = 1000, .servers = 1});
  CHECK_FALSE(queue.Startable(later).has_value());
  CHECK(queue.WhyWaiting("fits-2", later) == "waits behind huge-1");
}

TEST_CASE("Job queue: it says which GPUs are missing, and what each worker lacks",
          "[scheduler][core]") {
  const auto why = [](int workers, const DeviceNeed& need, const Supply& supply) {
    JobQueue queue;
    REQUIRE_OK(queue.Push("a-1", workers, 1, need));
    CHECK(queue.Needs() == std::vector<JobNeed>{need});
    const Supplies supplies = {{need, supply}};
    CHECK_FALSE(queue.Startable(supplies).has_value());
    std::string text = queue.WhyWaiting("a-1", supplies);
    const size_t end = text.find("; waits until more join, and jobs behind it go on");
    REQUIRE(end != std::string::npos);
    text.resize(end);
    return text;
  };
  constexpr DeviceNeed kOne = {.kind = DeviceNeed::Kind::kGpu, .gpus = 1};
  constexpr DeviceNeed kFour = {.kind = DeviceNeed::Kind::kGpu, .gpus = 4};
  constexpr DeviceNeed kThird = {.kind = DeviceNeed::Kind::kGpu, .gpus = 1, .index = 2};
  constexpr DeviceNeed kAny = {.kind = DeviceNeed::Kind::kAny, .gpus = 1};
  const Supply none{.servers = 1, .no_gpus = "worker-1: no CUDA driver"};
  CHECK(why(1, kOne, none) == "needs 1 GPU; no live worker has one: worker-1: no CUDA driver");
  CHECK(why(2, kFour, none) ==
        "needs 2 workers with 4 GPUs each; no live worker has as many: worker-1: no CUDA driver");
  CHECK(why(1, kThird, none) == "needs GPU 2; no live worker has it: worker-1: no CUDA driver");
  CHECK(why(1, kOne, {.servers = 1}) == "needs 1 GPU; no live worker has one");
  CHECK(why(3, kOne, {.slots_free = 1, .slots = 2, .servers = 1}) ==
        "needs 3 workers with 1 GPU each, 1 is free of 2 alive");
  CHECK(why(3, kAny, {.slots_free = 1, .slots = 2, .servers = 1}) ==
        "needs 3 workers, 1 is free of 2 alive");
}

TEST_CASE("Job queue: a job whose GPUs nobody has holds nobody up", "[scheduler][core]") {
  constexpr DeviceNeed kGpu = {.kind = DeviceNeed::Kind::kGpu, .gpus = 1};
  JobQueue queue;
  REQUIRE_OK(queue.Push("gpu-1", 1, 1, kGpu));
  REQUIRE_OK(queue.Push("cpu-2", 1, 1));
  REQUIRE_OK(queue.Push("cpu-3", 1, 1));
  REQUIRE_OK(queue.Push("gpu-4", 1, 1, kGpu));
  const Supply free{.slots_free = 1, .slots = 1, .servers = 1};
  const Supply taken{.slots_free = 0, .slots = 1, .servers = 1};
  const Supplies none = {{kGpu, {.servers = 1}}, {DeviceNeed(), free}};
  CHECK(queue.Needs() == std::vector<JobNeed>{kGpu, JobNeed()});
  CHECK(queue.Startable(none) == "cpu-2");
  CHECK(queue.WhyWaiting("cpu-2", none) == "is about to start");
  CHECK(queue.WhyWaiting("cpu-3", none) == "waits behind cpu-2");
  CHECK(queue.WhyWaiting("gpu-4", none) ==
        "needs 1 GPU; no live worker has one; waits until more join, and jobs behind it go on");
  // If a worker has a GPU, even one in use, the order of jobs holds again.
  const Supplies some = {{kGpu, taken}, {DeviceNeed(), free}};
  CHECK_FALSE(queue.Startable(some).has_value());
  CHECK(queue.WhyWaiting("cpu-2", some) == "waits behind gpu-1");
  CHECK(queue.WhyWaiting("gpu-4", some) == "waits behind gpu-1 and 2 more");
}

TEST_CASE("Job queue: it says which update rule is missing, and which servers lack it",
          "[scheduler][core]") {
  JobQueue queue;
  const JobNeed need = {DeviceNeed(), {{"signum", "12ab"}, {"prox", "34cd"}}};
  REQUIRE_OK(queue.Push("rule-1", 1, 2, need));
  REQUIRE_OK(queue.Push("none-2", 1, 1));
  const Supply all{.slots_free = 1, .slots = 1, .servers = 3};
  const Supplies few = {
      {need, {.slots_free = 1, .slots = 1, .servers = 1, .without_rules = "server-2, server-3"}},
      {JobNeed(), all}};
  CHECK(queue.Needs() == std::vector<JobNeed>{need, JobNeed()});
  CHECK(queue.WhyWaiting("rule-1", few) ==
        "needs 2 servers with update rule signum of the plugin with SHA-256 12ab and prox of the "
        "plugin with SHA-256 34cd, 1 is alive (without it: server-2, server-3; start them with "
        "--rule-plugin); waits until more join, and jobs behind it go on");
  CHECK(queue.Startable(few) == "none-2");
  CHECK(queue.Startable({{need, all}, {JobNeed(), all}}) == "rule-1");
}

TEST_CASE("Job queue: it is bounded", "[scheduler][core]") {
  JobQueue queue;
  for (size_t i = 0; i < JobQueue::kPendingMax; ++i) {
    REQUIRE_OK(queue.Push(absl::StrCat("job-", i), 1, 1));
  }
  CHECK_STATUS(queue.Push("job-x", 1, 1), absl::StatusCode::kResourceExhausted, "1000 jobs wait");
}

}  // namespace
}  // namespace capstan::scheduler::job_queue_test
