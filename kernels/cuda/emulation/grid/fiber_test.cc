#include "kernels/cuda/emulation/grid/fiber.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/death.h"

namespace capstan::kernels::cuda::emulation::fiber_test {
namespace {

TEST_CASE("Fiber: goes on where it paused, with its variables", "[kernels][cuda][emulation]") {
  std::string log;
  const auto count_from = [&log](char letter) {
    return [&log, letter](Fiber& self) {
      char at = letter;
      for (;;) {
        log += at++;
        self.Pause();
      }
    };
  };
  Fiber small(count_from('a')), large(count_from('A'));
  CHECK(log.empty());  // A fiber begins when it is resumed.
  for (int i = 0; i < 3; ++i) {
    small.Resume();
    large.Resume();
  }
  small.Resume();
  CHECK(log == "aAbBcCd");
}

TEST_CASE("Fiber: one may be resumed by another", "[kernels][cuda][emulation]") {
  std::string log;
  Fiber inner([&log](Fiber& self) {
    for (;;) {
      log += 'i';
      self.Pause();
    }
  });
  Fiber outer([&](Fiber& self) {
    for (;;) {
      inner.Resume();
      log += 'o';
      self.Pause();
    }
  });
  outer.Resume();
  inner.Resume();
  outer.Resume();
  CHECK(log == "ioiio");
}

#if !defined(__SANITIZE_ADDRESS__)  // It may put frames elsewhere.
// Recurses `depth` times. The compiler cannot merge the frames.
int Deep(int depth) {
  volatile char frame[1024] = {};
  return depth == 0 ? frame[0] : Deep(depth - 1) + frame[1];
}

TEST_CASE("Fiber: a stack that is too deep ends the process", "[kernels][cuda][emulation]") {
  const Death death = DeathOf([] {
    Fiber fiber([](Fiber& self) {
      Deep(1 << 20);
      self.Pause();
    });
    fiber.Resume();
  });
  CHECK(death.signal == SIGSEGV);
}
#endif

TEST_CASE("Fiber: a body that returns ends the process", "[kernels][cuda][emulation]") {
  const Death death = DeathOf([] {
    Fiber fiber([](Fiber&) {});
    fiber.Resume();
  });
  CHECK(death.signal == SIGABRT);
}

}  // namespace
}  // namespace capstan::kernels::cuda::emulation::fiber_test
