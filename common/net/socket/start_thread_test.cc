#include "common/net/socket/start_thread.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "common/testing/status_matchers.h"

namespace capstan::start_thread_test {
namespace {

TEST_CASE("StartThread: runs what it is given", "[common]") {
  std::atomic<bool> ran = false;
  REQUIRE_OK_AND_ASSIGN(std::thread thread, StartThread([&] { ran = true; }));
  thread.join();
  CHECK(ran);
}

}  // namespace
}  // namespace capstan::start_thread_test
