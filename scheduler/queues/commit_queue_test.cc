#include "scheduler/queues/commit_queue.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/testing/status_matchers.h"
#include "scheduler/store/testing/memory_store.h"

namespace capstan::scheduler::commit_queue_test {
namespace {

// A store whose first Write waits until the test notifies `go_on`.
class SlowStore final : public Store {
 public:
  absl::StatusOr<StoreRows> Load() override { return rows.Load(); }
  absl::Status Write(absl::Span<const StoreWrite> writes) override {
    sizes.push_back(writes.size());
    if (!begun.HasBeenNotified()) begun.Notify();
    go_on.WaitForNotification();
    return rows.Write(writes);
  }
  MemoryStore rows;
  std::vector<size_t> sizes;
  absl::Notification begun;
  absl::Notification go_on;
};

TEST_CASE("Commit queue: nothing is said before it is durable, and all in order", "[scheduler]") {
  SlowStore slow;
  MemoryStore& rows = slow.rows;
  std::vector<std::string> said;
  auto queue = std::make_unique<CommitQueue>(&slow, [](const absl::Status&) {});
  queue->Start();
  const auto say = [&](const std::string& what) {
    return [&said, &rows, what](const absl::Status& status) {
      said.push_back(what + (status.ok() && rows.Load()->contains(what) ? " is durable" : ""));
    };
  };
  queue->Push({{"a", "1"}}, say("a"));
  slow.begun.WaitForNotification();
  CHECK(said.empty());
  // These wait behind it. The second one writes nothing; its answer may depend on earlier steps.
  queue->Push({{"b", "1"}}, say("b"));
  queue->Push({}, say("x"));
  CHECK(said.empty());
  slow.go_on.Notify();
  queue->Stop();
  CHECK(said == std::vector<std::string>{"a is durable", "b is durable", "x"});
}

TEST_CASE("Commit queue: what gathers is one transaction, with the newest value of a key",
          "[scheduler]") {
  MemoryStore store;
  CommitQueue queue(&store, [](const absl::Status&) {});
  for (const char* value : {"1", "2", "3"}) queue.Push({{"a", value}}, [](const absl::Status&) {});
  queue.Push({{"b", "1"}}, [](const absl::Status&) {});
  queue.Push({{"b", std::nullopt}}, [](const absl::Status&) {});
  queue.Start();
  queue.Stop();
  CHECK(store.write_count() == 1);
  CHECK(*store.Load() == StoreRows{{"a", "3"}});
}

TEST_CASE("Commit queue: after a failed write nothing is written or said any more", "[scheduler]") {
  MemoryStore store;
  store.FailNext(absl::ResourceExhaustedError("disk full"));
  std::vector<absl::Status> said;
  int failures = 0;
  CommitQueue queue(&store, [&](const absl::Status& status) {
    CHECK_STATUS(status, absl::StatusCode::kResourceExhausted, "disk full");
    CHECK(said.empty());
    ++failures;
  });
  const auto say = [&said](const absl::Status& status) { said.push_back(status); };
  absl::Notification first;
  queue.Start();
  queue.Push({{"a", "1"}}, [&](const absl::Status& status) {
    said.push_back(status);
    first.Notify();
  });
  first.WaitForNotification();
  queue.Push({{"b", "1"}}, say);
  queue.Push({}, say);
  queue.Stop();
  queue.Push({}, say);
  REQUIRE(said.size() == 4);
  for (int i = 0; i < 3; ++i) {
    CHECK_STATUS(said[static_cast<size_t>(i)], absl::StatusCode::kResourceExhausted, "disk full");
  }
  CHECK_STATUS(said[3], absl::StatusCode::kUnavailable, "shutting down");
  CHECK(failures == 1);
  CHECK(store.Load()->empty());
}

}  // namespace
}  // namespace capstan::scheduler::commit_queue_test
