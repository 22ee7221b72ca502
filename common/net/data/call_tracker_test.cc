#include "common/net/data/call_tracker.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

namespace capstan::call_tracker_test {
namespace {

struct Object {
  explicit Object(std::atomic<int>* count) : count_(count) { ++*count; }
  ~Object() { --*count_; }
  std::atomic<int>* const count_;
};

TEST_CASE("Call tracker: waits until the last owner, on whatever thread, has let go", "[net]") {
  CallTracker tracker;
  tracker.WaitUntilGone();  // There is no call to wait for.
  std::atomic<int> count = 0;
  auto first = tracker.Make<Object>(&count);
  auto second = tracker.Make<Object>(&count);
  first.reset();
  CHECK(count == 1);
  std::thread other([&second] { second.reset(); });
  tracker.WaitUntilGone();
  CHECK(count == 0);
  other.join();
}

}  // namespace
}  // namespace capstan::call_tracker_test
