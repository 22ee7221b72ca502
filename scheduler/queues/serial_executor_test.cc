#include "scheduler/queues/serial_executor.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/synchronization/notification.h"

namespace capstan::scheduler::serial_executor_test {
namespace {

TEST_CASE("Serial executor: work runs in the order of posting, all of it before Stop returns",
          "[scheduler]") {
  std::vector<int> order;
  SerialExecutor executor(4);
  executor.Start();
  for (int i = 0; i < 100; ++i) executor.Post([&order, i] { order.push_back(i); });
  executor.Stop();
  REQUIRE(order.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(order[static_cast<size_t>(i)] == i);
}

TEST_CASE("Serial executor: a full queue refuses TryPost", "[scheduler]") {
  absl::Notification started;
  absl::Notification go_on;
  SerialExecutor executor(1);
  executor.Start();
  executor.Post([&] {
    started.Notify();
    go_on.WaitForNotification();
  });
  started.WaitForNotification();
  CHECK(executor.TryPost([] {}));
  CHECK_FALSE(executor.TryPost([] {}));
  go_on.Notify();
}

TEST_CASE("Serial executor: after Stop, Post runs at once and TryPost refuses", "[scheduler]") {
  SerialExecutor executor(1);
  executor.Start();
  executor.Stop();
  bool ran = false;
  executor.Post([&ran] { ran = true; });
  CHECK(ran);
  CHECK_FALSE(executor.TryPost([] {}));
}

}  // namespace
}  // namespace capstan::scheduler::serial_executor_test
