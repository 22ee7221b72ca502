// Tests of PushPullClient with operations on single tables, from several threads.
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/net/grpc/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "worker/client/push_pull_client.h"

namespace capstan::worker::table_operations_test {
namespace {

constexpr int kTables = 4;
constexpr size_t kElements = 3;

// Adds what is pushed to each table, which is one shard. It can hold back pulls.
class AddingServer final : public v1::ParameterServer::Service {
 public:
  grpc::Status Push(grpc::ServerContext*, const v1::PushRequest* request,
                    v1::PushResponse* response) override {
    absl::MutexLock lock(&mutex_);
    ++pushes_;
    if (lost_pushes_ > 0) {
      --lost_pushes_;
      return {grpc::StatusCode::UNAVAILABLE, "lost"};
    }
    for (const v1::ShardPush& shard : request->shards()) {
      const auto* const values = reinterpret_cast<const float*>(shard.values().data());
      for (size_t i = 0; i < kElements; ++i) tables_[shard.table()][i] += values[i];
      response->add_shards()->set_version(++version_);
    }
    return grpc::Status::OK;
  }

  grpc::Status Pull(grpc::ServerContext*, const v1::PullRequest* request,
                    v1::PullResponse* response) override {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&open_));
    for (const v1::ShardPull& shard : request->shards()) {
      const std::vector<float>& values = tables_[shard.table()];
      v1::ShardValues* const out = response->add_shards();
      out->set_outcome(v1::ShardValues::VALUES);
      out->set_version(version_);
      out->set_value_type(v1::FLOAT32);
      out->set_values(values.data(), kElements * sizeof(float));
    }
    return grpc::Status::OK;
  }

  void LosePushes(int count) {
    absl::MutexLock lock(&mutex_);
    lost_pushes_ = count;
  }
  void SetOpen(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }
  void AwaitPushes(int count) {
    const auto enough = [this, count]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pushes_ >= count; };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&enough));
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::vector<float>> tables_ ABSL_GUARDED_BY(mutex_) =
      std::vector<std::vector<float>>(kTables, std::vector<float>(kElements));
  int64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  int pushes_ ABSL_GUARDED_BY(mutex_) = 0;
  int lost_pushes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
};

struct Fixture {
  Fixture() {
    auto started = GrpcServer::Start({.services = {&fake}});
    REQUIRE_OK(started);
    server = *std::move(started);
    v1::RoutingTable routing;
    routing.set_generation(1);
    v1::ServerAddress* const address = routing.add_servers();
    address->set_address(server->address());
    address->set_node_id("server-1");
    for (int table = 0; table < kTables; ++table) {
      v1::ShardRoute* const shard = routing.add_shards();
      shard->set_table(table);
      shard->set_element_end(kElements);
    }
    REQUIRE_OK(client.SetRouting(routing));
  }
  ~Fixture() { fake.SetOpen(true); }
  OpId Push(int table, const std::vector<float>& values) {
    auto op = client.PushTable(TableId(table), Iteration(0), values, nullptr);
    REQUIRE_OK(op);
    return *op;
  }
  OpId Pull(int table, std::vector<float>* values) {
    auto op = client.PullTable(TableId(table), Iteration(0), absl::MakeSpan(*values));
    REQUIRE_OK(op);
    return *op;
  }

  SteadyClock clock;
  AddingServer fake;
  std::unique_ptr<GrpcServer> server;
  PushPullClient client{{.job = "job-1",
                         .rank = Rank(0),
                         .incarnation = Incarnation(1),
                         .session = {.table_chunks = true, .pulls_have_own_arrays = true}},
                        clock};
};

TEST_CASE("Client: one table is pushed from, and pulled into, the caller's memory",
          "[worker][client]") {
  Fixture f;
  const std::vector<float> pushed = {1, 2, 3};
  REQUIRE_OK(f.client.Wait(f.Push(2, pushed)));
  for (int i = 0; i < 2; ++i) {
    std::vector<float> pulled(kElements);  // Another place each time.
    REQUIRE_OK(f.client.Wait(f.Pull(2, &pulled)));
    CHECK(pulled == pushed);
  }
  std::vector<float> other(kElements, 9);
  REQUIRE_OK(f.client.Wait(f.Pull(1, &other)));
  CHECK(other == std::vector<float>(kElements));
}

TEST_CASE("Client: a table's values must be as many as its elements", "[worker][client]") {
  Fixture f;
  const std::vector<float> few(kElements - 1);
  const auto push = f.client.PushTable(TableId(1), Iteration(0), few, nullptr);
  CHECK(push.status().message() == "table 1 has 2 elements here, expected at least 3");
  CHECK(absl::IsInvalidArgument(
      f.client.PushTable(TableId(kTables), Iteration(0), few, nullptr).status()));
}

TEST_CASE("Client: threads wait for operations of their own at the same time", "[worker][client]") {
  constexpr int kRounds = 200;
  Fixture f;
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> last(kTables, std::vector<float>(kElements));
  for (int table = 0; table < kTables; ++table) {
    threads.emplace_back([&f, &last, table] {
      const std::vector<float> ones(kElements, 1);
      for (int round = 0; round < kRounds; ++round) {
        const auto push = f.client.PushTable(TableId(table), Iteration(round), ones, nullptr);
        const auto pull = f.client.PullTable(TableId(table), Iteration(round),
                                             absl::MakeSpan(last[static_cast<size_t>(table)]));
        if (!push.ok() || !pull.ok()) return;
        // Either order: an operation ends although another thread's was waited for first.
        f.client.WaitUntil(table % 2 == 0 ? *push : *pull, Instant::InfiniteFuture());
        f.client.WaitUntil(table % 2 == 0 ? *pull : *push, Instant::InfiniteFuture());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(last == std::vector<std::vector<float>>(kTables, std::vector<float>(kElements, kRounds)));
}

TEST_CASE("Client: a wait ends at its deadline, and the operation goes on", "[worker][client]") {
  Fixture f;
  f.fake.SetOpen(false);
  std::vector<float> pulled(kElements, 5);
  const OpId pull = f.Pull(0, &pulled);
  CHECK_FALSE(f.client.WaitUntil(pull, f.clock.Now()).has_value());
  CHECK_FALSE(f.client.WaitUntil(pull, f.clock.Now() + absl::Milliseconds(1)).has_value());
  CHECK(f.client.TextOf(pull).find("for server-1 (") != std::string::npos);
  CHECK_FALSE(f.client.IsIdle());
  f.client.Interrupt();  // It is for Wait alone.
  f.fake.SetOpen(true);
  const auto result = f.client.WaitUntil(pull, Instant::InfiniteFuture());
  REQUIRE(result.has_value());
  REQUIRE_OK(result->status());
  CHECK(pulled == std::vector<float>(kElements));
  CHECK(f.client.IsIdle());
  CHECK(f.client.TextOf(pull).empty());
  CHECK(absl::IsNotFound(f.client.WaitUntil(pull, f.clock.Now())->status()));  // It was taken.
}

TEST_CASE("Client: what is attended goes on although nobody waits for it", "[worker][client]") {
  Fixture f;
  f.fake.LosePushes(2);
  std::thread attendant(
      [&f] { f.client.AttendOperations(PushPullClient::Attend::kUntilInterrupted); });
  const OpId push = f.Push(0, {1, 1, 1});
  f.fake.AwaitPushes(3);
  f.client.Interrupt();
  attendant.join();
  REQUIRE_OK(f.client.Wait(push).status());
}

TEST_CASE("Client: attending ends when no operation runs, if that was asked for",
          "[worker][client]") {
  Fixture f;
  f.fake.LosePushes(2);
  f.Push(0, {1, 1, 1});
  f.client.AttendOperations(PushPullClient::Attend::kUntilIdle);
  CHECK(f.client.IsIdle());
}

TEST_CASE("Client: it lets go of a push's values", "[worker][client]") {
  Fixture f;
  absl::Notification free;
  const std::vector<float> ones(kElements, 1);
  std::shared_ptr<const void> owner(&ones, [&free](const void*) { free.Notify(); });
  const auto push = f.client.PushTable(TableId(0), Iteration(0), ones, std::move(owner));
  REQUIRE_OK(push);
  REQUIRE_OK(f.client.Wait(*push));
  free.WaitForNotification();
  CHECK(free.HasBeenNotified());
}

}  // namespace
}  // namespace capstan::worker::table_operations_test
