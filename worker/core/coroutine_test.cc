#include "worker/core/coroutine.h"

#include <catch2/catch.hpp>
#include <coroutine>
#include <utility>

namespace capstan::worker::coroutine_test {
namespace {

// An awaitable that is open at once, or that Open() opens later.
struct Gate {
  bool await_ready() const { return open; }
  void await_suspend(std::coroutine_handle<> handle) { waiting = handle; }
  void await_resume() const {}
  void Open() {
    open = true;
    std::exchange(waiting, nullptr).resume();
  }
  bool open = false;
  std::coroutine_handle<> waiting;
};

// Counts the frames that are alive.
struct Witness {
  explicit Witness(int* alive) : alive_(alive) { ++*alive_; }
  ~Witness() { --*alive_; }
  int* alive_;
};

Coroutine<int> Inner(Gate& gate, int* alive) {
  const Witness witness(alive);
  co_await gate;
  co_return 7;
}

Coroutine<int> Outer(Gate& gate, int* alive) {
  const Witness witness(alive);
  int sum = 0;
  for (int i = 0; i < 3; ++i) {
    Coroutine<int> inner = Inner(gate, alive);
    sum += co_await inner;
    gate.open = gate.open && i > 0;  // The first wait opens the gate, the second closes it.
  }
  co_return sum;
}

TEST_CASE("Coroutine: where nothing waits, it has ended when the call returns", "[worker][core]") {
  int alive = 0;
  Gate gate{.open = true};
  const Coroutine<int> inner = Inner(gate, &alive);
  REQUIRE(inner.ended());
  CHECK(inner.result() == 7);
  CHECK(alive == 0);
}

TEST_CASE("Coroutine: the caller goes on when what it awaits has ended", "[worker][core]") {
  int alive = 0;
  Gate gate;
  const Coroutine<int> outer = Outer(gate, &alive);
  CHECK_FALSE(outer.ended());
  CHECK(alive == 2);
  gate.Open();
  CHECK_FALSE(outer.ended());  // It is in its second round.
  gate.Open();
  REQUIRE(outer.ended());
  CHECK(outer.result() == 21);
  CHECK(alive == 0);
}

TEST_CASE("Coroutine: destroying the outermost one destroys all that it awaits", "[worker][core]") {
  int alive = 0;
  Gate gate;
  {
    Coroutine<int> outer = Outer(gate, &alive);
    const Coroutine<int> moved = std::move(outer);
    CHECK(alive == 2);
  }
  CHECK(alive == 0);
}

Coroutine<int> ManyRounds(Gate& gate, int* alive) {
  int sum = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    Coroutine<int> inner = Inner(gate, alive);
    sum += co_await inner;
  }
  co_return sum;
}

TEST_CASE("Coroutine: rounds that do not wait do not grow the stack", "[worker][core]") {
  int alive = 0;
  Gate gate{.open = true};
  const Coroutine<int> rounds = ManyRounds(gate, &alive);
  REQUIRE(rounds.ended());
  CHECK(rounds.result() == 7'000'000);
}

}  // namespace
}  // namespace capstan::worker::coroutine_test
