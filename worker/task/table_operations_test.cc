#include "worker/task/table_operations.h"

#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/net/grpc/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "proto/parameter_server.grpc.pb.h"

namespace capstan::worker::table_operations_test {
namespace {

constexpr size_t kElements = 3;
constexpr int kDense = 0, kRows = 1;
constexpr size_t kDim = 2;
constexpr absl::Duration kLong = absl::Minutes(1);

// Adds what is pushed: to the elements of table 0, and to the rows of table 1, whose new rows are
// 0. Pulls can be held back.
class AddingServer final : public v1::ParameterServer::Service {
 public:
  grpc::Status Push(grpc::ServerContext*, const v1::PushRequest* request,
                    v1::PushResponse* response) override {
    absl::MutexLock lock(&mutex_);
    iterations_.push_back(request->iteration());
    for (const v1::ShardPush& shard : request->shards()) {
      const std::string& bytes = shard.values();
      if (refuse_) return {grpc::StatusCode::INVALID_ARGUMENT, "no"};
      if (shard.table() == kDense) {
        const auto* const values = reinterpret_cast<const float*>(bytes.data());
        for (size_t i = 0; i < kElements; ++i) dense_[i] += values[i];
      } else {
        const size_t count = bytes.size() / (sizeof(uint64_t) + kDim * sizeof(float));
        const auto* const keys = reinterpret_cast<const uint64_t*>(bytes.data());
        const auto* const values = reinterpret_cast<const float*>(keys + count);
        for (size_t k = 0; k < count * kDim; ++k) rows_[keys[k / kDim]][k % kDim] += values[k];
      }
      response->add_shards()->set_version(++version_);
    }
    return grpc::Status::OK;
  }

  grpc::Status Pull(grpc::ServerContext*, const v1::PullRequest* request,
                    v1::PullResponse* response) override {
    absl::MutexLock lock(&mutex_);
    ++pulls_;
    mutex_.Await(absl::Condition(&open_));
    for (const v1::ShardPull& shard : request->shards()) {
      std::vector<float> values = dense_;
      if (shard.table() == kRows) {
        values.clear();
        const auto* const keys = reinterpret_cast<const uint64_t*>(shard.keys().data());
        for (size_t k = 0; k < shard.keys().size() / sizeof(uint64_t); ++k) {
          values.insert(values.end(), rows_[keys[k]].begin(), rows_[keys[k]].end());
        }
      }
      v1::ShardValues* const out = response->add_shards();
      out->set_outcome(v1::ShardValues::VALUES);
      out->set_version(version_);
      out->set_value_type(v1::FLOAT32);
      out->set_values(values.data(), values.size() * sizeof(float));
    }
    return grpc::Status::OK;
  }

  void Refuse() {
    absl::MutexLock lock(&mutex_);
    refuse_ = true;
  }
  void SetOpen(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }
  void AwaitPull() {
    const auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pulls_ > 0; };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&any));
  }
  std::vector<int64_t> iterations() {
    absl::MutexLock lock(&mutex_);
    return iterations_;
  }

 private:
  struct Row : std::vector<float> {
    Row() : std::vector<float>(kDim) {}
  };
  absl::Mutex mutex_;
  std::vector<float> dense_ ABSL_GUARDED_BY(mutex_) = std::vector<float>(kElements);
  std::map<uint64_t, Row> rows_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> iterations_ ABSL_GUARDED_BY(mutex_);
  int64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  int pulls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  bool refuse_ ABSL_GUARDED_BY(mutex_) = false;
};

// The client's clock. It tells when a thread is within the client: there it asks for the time.
class WatchedClock final : public Clock {
 public:
  Instant Now() const override {
    absl::MutexLock lock(&mutex_);
    asked_ = asked_ || std::this_thread::get_id() == watched_;
    return clock_.Now();
  }
  void WatchThisThread() {
    absl::MutexLock lock(&mutex_);
    watched_ = std::this_thread::get_id();
  }
  void AwaitWatched() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&asked_));
  }

 private:
  const SteadyClock clock_;
  mutable absl::Mutex mutex_;
  std::thread::id watched_ ABSL_GUARDED_BY(mutex_);
  mutable bool asked_ ABSL_GUARDED_BY(mutex_) = false;
};

std::vector<v1::TableSpec> Tables() {
  std::vector<v1::TableSpec> tables(2);
  tables[0].set_name("w");
  tables[0].set_elements(kElements);
  tables[1].set_table(kRows);
  tables[1].set_name("ads");
  tables[1].mutable_sparse()->set_dim(kDim);
  tables[1].mutable_sparse()->set_buckets(1);
  return tables;
}

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
    routing.add_shards()->set_element_end(kElements);
    routing.add_shards()->set_table(kRows);
    routing.mutable_shards(1)->set_element_end(1);
    REQUIRE_OK(client.SetRouting(routing));
    tables.Open();
  }
  ~Fixture() { fake.SetOpen(true); }

  // Waits until an operation has ended.
  absl::Status Ended(const absl::StatusOr<int64_t>& operation) {
    REQUIRE_OK(operation);
    const TableOperations::Waited waited = tables.Wait(*operation, kLong);
    CHECK(waited.ended);
    return waited.status;
  }

  WatchedClock clock;
  AddingServer fake;
  std::unique_ptr<GrpcServer> server;
  PushPullClient client{
      {.job = "job-1",
       .rank = Rank(0),
       .incarnation = Incarnation(1),
       .session = {.operations_max = 2000, .table_chunks = true, .pulls_have_own_arrays = true}},
      clock};
  int64_t ended = 0;
  TableOperations tables{&client, Tables(),
                         [this](const std::string&, int64_t more) { ended += more; }};
  const std::vector<float> ones = {1, 1, 1};
  std::vector<float> pulled = std::vector<float>(kElements);
};

TEST_CASE("TableOperations: a dense table is pushed and pulled, its pushes numbered") {
  Fixture f;
  for (int i = 0; i < 3; ++i) REQUIRE_OK(f.Ended(f.tables.Push(kDense, std::nullopt, f.ones)));
  REQUIRE_OK(f.Ended(f.tables.Pull(kDense, std::nullopt, absl::MakeSpan(f.pulled))));
  CHECK(f.pulled == std::vector<float>{3, 3, 3});
  CHECK(f.fake.iterations() == std::vector<int64_t>{0, 1, 2});
  CHECK(f.ended == 4);
}

TEST_CASE("TableOperations: rows come in the order of the keys, and those pushed twice add up") {
  Fixture f;
  const std::vector<int64_t> keys = {7, -2, 7};
  REQUIRE_OK(f.Ended(f.tables.Push(kRows, keys, {1, 2, 3, 4, 10, 20})));
  const std::vector<int64_t> asked = {-2, 7, 5, -2};
  std::vector<float> rows(asked.size() * kDim, 9);
  REQUIRE_OK(f.Ended(f.tables.Pull(kRows, asked, absl::MakeSpan(rows))));
  CHECK(rows == std::vector<float>{3, 4, 11, 22, 0, 0, 3, 4});
}

TEST_CASE("TableOperations: what does not fit is refused with a sentence") {
  Fixture f;
  const auto refused = [&f](int table, TableOperations::Keys keys, std::vector<float> values) {
    return std::string(f.tables.Push(table, keys, values).status().message());
  };
  const std::vector<int64_t> keys = {1};
  CHECK(refused(2, std::nullopt, {}) == "table 2, expected 0 to 1");
  CHECK(refused(-1, std::nullopt, {}) == "table -1, expected 0 to 1");
  CHECK(refused(kDense, std::nullopt, {1}) == "\"w\" has 3 elements, and got 1");
  CHECK(refused(kDense, keys, {1, 1, 1}) == "\"w\" has no rows: no keys are expected");
  CHECK(refused(kRows, std::nullopt, {1, 1}) == "\"ads\" has rows: keys are expected");
  CHECK_THAT(refused(kRows, keys, {1}), Catch::Contains("got 1 values for 1 keys, expected 2"));
  CHECK(absl::IsInvalidArgument(f.tables.Pull(kDense, std::nullopt, {}).status()));
  const float infinity = std::numeric_limits<float>::infinity();
  const auto diverged = f.tables.Push(kDense, std::nullopt, {0, infinity, 0});
  CHECK(absl::IsOutOfRange(diverged.status()));
  CHECK(diverged.status().message() == "what is pushed to \"w\" has inf at 1");
  const std::vector<int64_t> twice = {1, 1};
  const float huge = std::numeric_limits<float>::max();
  CHECK(absl::IsOutOfRange(f.tables.Push(kRows, twice, {huge, 0, huge, 0}).status()));
  CHECK(f.fake.iterations().empty());
}

TEST_CASE("TableOperations: a wait says for whom, and is for one thread, once") {
  Fixture f;
  f.fake.SetOpen(false);
  const auto pull = f.tables.Pull(kDense, std::nullopt, absl::MakeSpan(f.pulled));
  REQUIRE_OK(pull);
  const TableOperations::Waited waited = f.tables.Wait(*pull, absl::Milliseconds(1));
  CHECK_FALSE(waited.ended);
  CHECK_THAT(waited.text, Catch::StartsWith("\"w\": pull of iteration 0 of table 0 has waited"));
  CHECK_THAT(waited.text, Catch::Contains("for server-1 ("));
  f.fake.SetOpen(true);
  REQUIRE_OK(f.Ended(pull));
  CHECK(absl::IsNotFound(f.tables.Wait(*pull, kLong).status));
  CHECK(absl::IsNotFound(f.tables.Wait(77, kLong).status));
}

TEST_CASE("TableOperations: a push that a server refuses ends with its sentence") {
  Fixture f;
  f.fake.Refuse();
  const absl::Status status = f.Ended(f.tables.Push(kDense, std::nullopt, f.ones));
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("\"w\": push of iteration 0"));
}

TEST_CASE("TableOperations: so many operations are not waited for, and no more") {
  Fixture f;
  std::vector<std::vector<float>> pulled(TableOperations::kOperationsMax,
                                         std::vector<float>(kElements));
  std::vector<int64_t> operations;
  for (std::vector<float>& values : pulled) {
    const auto pull = f.tables.Pull(kDense, std::nullopt, absl::MakeSpan(values));
    REQUIRE_OK(pull);
    operations.push_back(*pull);
  }
  CHECK(absl::IsResourceExhausted(f.tables.Push(kDense, std::nullopt, f.ones).status()));
  REQUIRE_OK(f.Ended(operations[0]));
  REQUIRE_OK(f.Ended(f.tables.Push(kDense, std::nullopt, f.ones)));
}

TEST_CASE("TableOperations: while it is paused no operation begins") {
  Fixture f;
  f.tables.SetPaused(true);
  CHECK(f.tables.IsIdle());
  absl::StatusOr<int64_t> push;
  std::thread program([&] { push = f.tables.Push(kDense, std::nullopt, f.ones); });
  SECTION("it begins when the job goes on") {
    f.tables.SetPaused(false);
    program.join();
    REQUIRE_OK(f.Ended(push));
  }
  SECTION("it is refused when the run is taken away") {
    f.tables.End();
    program.join();
    CHECK(absl::IsCancelled(push.status()));
  }
}

TEST_CASE("TableOperations: the wait for idleness ends with the last operation, or at once") {
  Fixture f;
  const bool running = GENERATE(false, true);
  f.fake.SetOpen(!running);
  const auto pull = f.tables.Pull(kDense, std::nullopt, absl::MakeSpan(f.pulled));
  if (!running) REQUIRE_OK(f.Ended(pull));
  f.tables.SetPaused(true);
  CHECK(f.tables.IsIdle() == !running);
  absl::Notification idle;
  std::thread task([&] {
    f.tables.AwaitIdle();
    idle.Notify();
  });
  f.fake.SetOpen(true);
  CHECK(idle.WaitForNotificationWithTimeout(kLong / 3));
  f.client.Interrupt();  // It waits no more.
  task.join();
  CHECK(f.tables.IsIdle());
}

TEST_CASE("TableOperations: what was not waited for is drained, and its error found") {
  Fixture f;
  const bool refused = GENERATE(false, true);
  if (refused) f.fake.Refuse();
  const auto push = f.tables.Push(kDense, std::nullopt, f.ones);
  REQUIRE_OK(push);
  f.tables.Close();
  CHECK(absl::IsCancelled(f.tables.Push(kDense, std::nullopt, f.ones).status()));
  while (!f.tables.IsIdle()) f.tables.AwaitIdle();
  CHECK(f.tables.Drain().ok() == !refused);
  f.tables.End();
  CHECK(f.Ended(push).ok() == !refused);  // A thread may still ask for its end.
}

TEST_CASE("TableOperations: the end of the run ends every wait") {
  Fixture f;
  f.fake.SetOpen(false);
  const auto pull = f.tables.Pull(kDense, std::nullopt, absl::MakeSpan(f.pulled));
  REQUIRE_OK(pull);
  f.fake.AwaitPull();
  TableOperations::Waited waited;
  std::thread program([&] {
    f.clock.WatchThisThread();
    waited = f.tables.Wait(*pull, kLong);
  });
  f.clock.AwaitWatched();
  f.tables.End();
  program.join();
  CHECK(waited.ended);
  CHECK(absl::IsCancelled(waited.status));
  CHECK(f.client.IsIdle());  // Nothing is written to its place any more.
}

}  // namespace
}  // namespace capstan::worker::table_operations_test
