#include "worker/core/overlap_scheduler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <deque>
#include <limits>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"

namespace capstan::worker {
namespace {

using Actions = OverlapScheduler::Actions;

std::vector<Range> Shards(const std::vector<int64_t>& sizes) {
  std::vector<Range> shards;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    shards.push_back({begin, begin + size});
    begin += size;
  }
  return shards;
}

Actions Ready(OverlapScheduler& scheduler, int64_t first) {
  Actions actions;
  REQUIRE_OK(scheduler.GradientReady(first, &actions));
  return actions;
}
Actions Pushed(OverlapScheduler& scheduler, int shard) {
  Actions actions;
  REQUIRE_OK(scheduler.Pushed(shard, &actions));
  return actions;
}
Actions Arrived(OverlapScheduler& scheduler, int shard) {
  Actions actions;
  REQUIRE_OK(scheduler.Arrived(shard, &actions));
  return actions;
}

TEST_CASE("Overlap: the lowest shard that is there goes first, within the window",
          "[worker][core]") {
  OverlapScheduler scheduler(Shards({10, 10, 10, 10}), {.window_elements = 10});
  CHECK(scheduler.all_here());
  REQUIRE_OK(scheduler.BeginStep());
  CHECK(scheduler.arrived_end() == 0);
  CHECK(Ready(scheduler, 35) == Actions{});  // A part of the last shard.
  CHECK(Ready(scheduler, 30) == Actions{.push = {3}, .pull = {}});
  CHECK(Ready(scheduler, 10) == Actions{});  // The window is full.
  CHECK(Ready(scheduler, 0) == Actions{});
  CHECK(Pushed(scheduler, 3) == Actions{.push = {0}, .pull = {3}});
  CHECK(Pushed(scheduler, 0) == Actions{.push = {1}, .pull = {}});
  CHECK(Arrived(scheduler, 3) == Actions{.push = {}, .pull = {0}});
  CHECK(scheduler.arrived_end() == 0);
  CHECK(Arrived(scheduler, 0) == Actions{});
  CHECK(scheduler.arrived_end() == 10);
  CHECK(Pushed(scheduler, 1) == Actions{.push = {2}, .pull = {1}});
  CHECK(Pushed(scheduler, 2) == Actions{});
  CHECK(Arrived(scheduler, 1) == Actions{.push = {}, .pull = {2}});
  CHECK(scheduler.arrived_end() == 20);
  CHECK_FALSE(scheduler.all_here());
  CHECK(Arrived(scheduler, 2) == Actions{});
  CHECK(scheduler.all_here());
  REQUIRE_OK(scheduler.BeginStep());
}

TEST_CASE("Overlap: a shard larger than the window goes alone, and none passes it",
          "[worker][core]") {
  OverlapScheduler scheduler(Shards({50, 4, 4}), {.window_elements = 10});
  REQUIRE_OK(scheduler.BeginStep());
  CHECK(Ready(scheduler, 54) == Actions{.push = {2}, .pull = {}});
  CHECK(Ready(scheduler, 0) == Actions{});  // Shard 1 would fit; shard 0 is needed before it.
  CHECK(Pushed(scheduler, 2) == Actions{.push = {0}, .pull = {2}});
  CHECK(Pushed(scheduler, 0) == Actions{.push = {1}, .pull = {}});
}

TEST_CASE("Overlap: what was lost is sent again in its turn", "[worker][core]") {
  OverlapScheduler scheduler(Shards({10, 10}), {.window_elements = 10});
  REQUIRE_OK(scheduler.BeginStep());
  CHECK(Ready(scheduler, 10) == Actions{.push = {1}, .pull = {}});
  CHECK(Ready(scheduler, 0) == Actions{});
  Actions again;
  REQUIRE_OK(scheduler.Lost(1, &again));
  CHECK(again == Actions{.push = {0}, .pull = {}});
  CHECK(Pushed(scheduler, 0) == Actions{.push = {1}, .pull = {0}});
  again = {};
  REQUIRE_OK(scheduler.Lost(0, &again));
  CHECK(again == Actions{.push = {}, .pull = {0}});
}

TEST_CASE("Overlap: what cannot have happened is refused and changes nothing", "[worker][core]") {
  OverlapScheduler scheduler(Shards({10, 10}), {.window_elements = 100});
  REQUIRE_OK(scheduler.BeginStep());
  Actions actions;
  CHECK_STATUS(scheduler.BeginStep(), absl::StatusCode::kFailedPrecondition,
               "a step begins, and shard 0 is not here yet: its gradient is being computed");
  CHECK_STATUS(scheduler.GradientReady(21, &actions), absl::StatusCode::kInvalidArgument,
               "final from element 21 on, expected 0 to 20");
  REQUIRE_OK(scheduler.GradientReady(10, &actions));
  CHECK_STATUS(scheduler.GradientReady(11, &actions), absl::StatusCode::kInvalidArgument,
               "expected 0 to 10");
  CHECK_STATUS(scheduler.Pushed(0, &actions), absl::StatusCode::kFailedPrecondition,
               "shard 0: its gradient is being computed, expected that it is being pushed");
  CHECK_STATUS(scheduler.Arrived(1, &actions), absl::StatusCode::kFailedPrecondition,
               "shard 1: it is being pushed, expected that it is being pulled");
  CHECK_STATUS(scheduler.Lost(0, &actions), absl::StatusCode::kFailedPrecondition, "shard 0");
  CHECK_STATUS(scheduler.Pushed(2, &actions), absl::StatusCode::kInvalidArgument,
               "shard 2, expected one below 2");
  CHECK(actions == Actions{.push = {1}, .pull = {}});
}

TEST_CASE("Overlap: a table without shards is always here", "[worker][core]") {
  OverlapScheduler scheduler({}, {});
  REQUIRE_OK(scheduler.BeginStep());
  CHECK(Ready(scheduler, 0) == Actions{});
  CHECK(scheduler.all_here());
}

// ---------------------------------------------------------------- a fake device

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// One direction of a link: messages one after the other, in the order in which they are given.
struct Link {
  std::deque<int> queue;
  int64_t done_at = kNever;  // Of the first.

  void Send(const std::vector<int>& shards, int64_t now, int64_t ticks) {
    for (const int shard : shards) queue.push_back(shard);
    if (done_at == kNever && !queue.empty()) done_at = now + ticks;
  }
  int Take(int64_t now, int64_t ticks) {
    const int shard = queue.front();
    queue.pop_front();
    done_at = queue.empty() ? kNever : now + ticks;
    return shard;
  }
};

// A device that computes layers of one shard each, and a full-duplex link. All times in ticks.
struct Machine {
  int layers = 0;
  int64_t forward = 0, backward = 0;  // Of a layer.
  int64_t message = 0;                // A shard in one direction.
};

struct Run {
  int64_t ticks = 0;            // From the first backward pass to the end of the forward pass.
  std::vector<int> push_order;  // As the link got them.
};

// A backward pass and the forward pass after it. Window: in shards.
Run RunStep(const Machine& machine, int64_t window) {
  OverlapScheduler scheduler(Shards(std::vector<int64_t>(machine.layers, 1)),
                             {.window_elements = window});
  REQUIRE_OK(scheduler.BeginStep());
  Run run;
  Link up, down;
  int64_t now = 0, computed_at = machine.backward;
  int backward_left = machine.layers, forward_done = 0;
  bool forward_runs = false;
  while (forward_done < machine.layers) {
    now = std::min({computed_at, up.done_at, down.done_at});
    REQUIRE(now != kNever);  // Else nothing will ever happen again.
    Actions actions;
    if (up.done_at == now) {
      REQUIRE_OK(scheduler.Pushed(up.Take(now, machine.message), &actions));
    } else if (down.done_at == now) {
      REQUIRE_OK(scheduler.Arrived(down.Take(now, machine.message), &actions));
    } else if (backward_left > 0) {
      REQUIRE_OK(scheduler.GradientReady(--backward_left, &actions));
      computed_at = backward_left > 0 ? now + machine.backward : kNever;
    } else {
      ++forward_done;
      forward_runs = false;
      computed_at = kNever;
    }
    run.push_order.insert(run.push_order.end(), actions.push.begin(), actions.push.end());
    up.Send(actions.push, now, machine.message);
    down.Send(actions.pull, now, machine.message);
    if (backward_left == 0 && !forward_runs && scheduler.arrived_end() > forward_done) {
      forward_runs = true;
      computed_at = now + machine.forward;
    }
  }
  run.ticks = now;
  return run;
}

TEST_CASE("Overlap: with a slow link the next forward pass starts while shards are on their way",
          "[worker][core]") {
  // Pushes end at 49, 79, 109 and 139, pulls 30 later. The first layer's is the third: the forward
  // pass starts at 139 and waits for the second layer's parameters only, until 169.
  const Machine machine{.layers = 4, .forward = 10, .backward = 19, .message = 30};
  const Run small = RunStep(machine, 1);
  CHECK(small.push_order == std::vector<int>{3, 2, 0, 1});
  CHECK(small.ticks == 199);
  // Without a window all is sent as it is computed: the first layer's parameters come last.
  const Run large = RunStep(machine, 4);
  CHECK(large.push_order == std::vector<int>{3, 2, 1, 0});
  CHECK(large.ticks == 209);
}

TEST_CASE("Overlap: with a fast link only the first layer's way there and back is seen",
          "[worker][core]") {
  const Machine machine{.layers = 8, .forward = 10, .backward = 20, .message = 5};
  CHECK(RunStep(machine, 1).ticks == 8 * 20 + 2 * 5 + 8 * 10);
}

TEST_CASE("Overlap: the more layers wait for a slow link, the more of it is hidden",
          "[worker][core]") {
  for (const int layers : {1, 2, 5, 16, 50}) {
    const Machine machine{.layers = layers, .forward = 30, .backward = 10, .message = 30};
    const int64_t apart = layers * (10 + 30 + 30) + 30;  // First all pushes, then all forward.
    const Run run = RunStep(machine, 1);
    INFO(layers << " layers: " << run.ticks << " of " << apart);
    CHECK(run.ticks <= RunStep(machine, layers).ticks);
    CHECK(run.ticks <= apart);
    if (layers >= 5) CHECK(run.ticks < apart * 4 / 5);
  }
}

TEST_CASE("Overlap: whatever order things happen in, each shard goes once and all come back",
          "[worker][core]") {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    uint64_t draws = 0;
    const auto below = [&](size_t bound) { return PhiloxWord(seed, draws++) % bound; };
    std::vector<int64_t> sizes(1 + below(12));
    for (int64_t& size : sizes) size = 1 + static_cast<int64_t>(below(20));
    OverlapScheduler scheduler(Shards(sizes),
                               {.window_elements = 1 + static_cast<int64_t>(below(40))});
    REQUIRE_OK(scheduler.BeginStep());
    std::vector<int> pushing, pulling, pushes(sizes.size()), pulls(sizes.size());
    int64_t first = scheduler.elements(), arrived = 0;
    while (!scheduler.all_here()) {
      Actions actions;
      const bool lost = below(5) == 0;
      std::vector<int>& under_way = below(2) == 0 ? pushing : pulling;
      if (!under_way.empty()) {
        const size_t pick = below(under_way.size());
        const int shard = under_way[pick];
        under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(pick));
        const bool push = &under_way == &pushing;
        if (lost) {
          REQUIRE_OK(scheduler.Lost(shard, &actions));
        } else if (push) {
          ++pushes[static_cast<size_t>(shard)];
          REQUIRE_OK(scheduler.Pushed(shard, &actions));
        } else {
          ++pulls[static_cast<size_t>(shard)];
          REQUIRE_OK(scheduler.Arrived(shard, &actions));
        }
      } else if (first > 0) {
        first -= 1 + static_cast<int64_t>(below(static_cast<size_t>(first)));
        REQUIRE_OK(scheduler.GradientReady(first, &actions));
      }
      pushing.insert(pushing.end(), actions.push.begin(), actions.push.end());
      pulling.insert(pulling.end(), actions.pull.begin(), actions.pull.end());
      REQUIRE(scheduler.arrived_end() >= arrived);
      arrived = scheduler.arrived_end();
      REQUIRE((first > 0 || !pushing.empty() || !pulling.empty() || scheduler.all_here()));
    }
    CHECK(pushes == std::vector<int>(sizes.size(), 1));
    CHECK(pulls == std::vector<int>(sizes.size(), 1));
  }
}

}  // namespace
}  // namespace capstan::worker
