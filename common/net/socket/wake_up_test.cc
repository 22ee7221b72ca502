#include "common/net/socket/wake_up.h"

#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

namespace capstan::wake_up_test {
namespace {

bool Readable(const WakeUp& wake_up) {
  pollfd file{.fd = wake_up.descriptor(), .events = POLLIN, .revents = 0};
  return poll(&file, 1, 0) == 1;
}

TEST_CASE("Wake up: readable from a Wake to the next Clear", "[net]") {
  WakeUp wake_up;
  CHECK_FALSE(Readable(wake_up));
  CHECK_FALSE(wake_up.Clear(false));
  wake_up.Wake();
  wake_up.Wake();
  CHECK(wake_up.woken());
  CHECK(Readable(wake_up));
  CHECK(wake_up.Clear(true));
  CHECK_FALSE(Readable(wake_up));
  CHECK_FALSE(wake_up.woken());
}

TEST_CASE("Wake up: a Clear that comes in the middle of a Wake leaves nothing readable for good",
          "[net]") {
  WakeUp wake_up;
  std::atomic<int> begun = 0, ended = 0;
  constexpr int kRounds = 2000;
  std::thread waker([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (begun.load() < round) std::this_thread::yield();
      wake_up.Wake();
      ended.store(round);
    }
  });
  int stuck = 0;
  for (int round = 1; round <= kRounds; ++round) {
    begun.store(round);
    while (!wake_up.woken() && ended.load() < round) std::this_thread::yield();
    wake_up.Clear(false);
    while (ended.load() < round) std::this_thread::yield();
    // Quiet: who polls now clears what is left.
    wake_up.Clear(Readable(wake_up));
    if (Readable(wake_up)) ++stuck;
  }
  waker.join();
  CHECK(stuck == 0);
}

}  // namespace
}  // namespace capstan::wake_up_test
