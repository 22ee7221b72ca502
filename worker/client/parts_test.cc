// Tests of pulls whose first elements are used before the last ones have arrived, and of pushes
// that are ordered by what the next forward pass needs first.
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/net/grpc/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "worker/client/push_pull_client.h"

namespace capstan::worker::parts_test {
namespace {

constexpr int kShards = 4;
constexpr int64_t kElements = 4;  // Elements per shard, which is a message of its own.
constexpr int64_t kEnd = kShards * kElements;
constexpr int64_t kRoomBytes = 64;  // The bytes that a message counts.

// Answers a message about a shard when the shard's gate is open; all values are `value_`.
class GatedServer final : public v1::ParameterServer::Service {
 public:
  explicit GatedServer(float value) : value_(value) {}

  grpc::Status Push(grpc::ServerContext*, const v1::PushRequest* request,
                    v1::PushResponse* response) override {
    for (const v1::ShardPush& shard : request->shards()) {
      Pass(shard.shard());
      response->add_shards()->set_version(1);
    }
    return grpc::Status::OK;
  }
  grpc::Status Pull(grpc::ServerContext*, const v1::PullRequest* request,
                    v1::PullResponse* response) override {
    for (const v1::ShardPull& shard : request->shards()) {
      Pass(shard.shard());
      v1::ShardValues* out = response->add_shards();
      out->set_outcome(v1::ShardValues::VALUES);
      out->set_version(3);
      out->set_value_type(v1::FLOAT32);
      const std::vector<float> values(kElements, value_);
      out->set_values(values.data(), values.size() * sizeof(float));
    }
    return grpc::Status::OK;
  }

  void Open(const std::vector<int>& shards) {
    absl::MutexLock lock(&mutex_);
    open_.insert(shards.begin(), shards.end());
  }
  // Waits for `count` shards, and returns them in the order of their arrival.
  std::vector<int> AwaitCame(size_t count) {
    absl::MutexLock lock(&mutex_);
    auto enough = [this, count]()
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return came_.size() >= count; };
    mutex_.Await(absl::Condition(&enough));
    return came_;
  }

 private:
  void Pass(int shard) {
    absl::MutexLock lock(&mutex_);
    came_.push_back(shard);
    auto open = [this, shard]()
                    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return open_.contains(shard); };
    mutex_.Await(absl::Condition(&open));
  }

  const float value_;
  absl::Mutex mutex_;
  std::set<int> open_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> came_ ABSL_GUARDED_BY(mutex_);
};

struct Cluster {
  Cluster() {
    for (size_t s = 0; s < 2; ++s) {
      auto started = GrpcServer::Start({.services = {&fakes[s]}});
      REQUIRE_OK(started);
      servers[s] = *std::move(started);
    }
    Route(1, {0, 0, 0, 0});
  }
  ~Cluster() {
    for (GatedServer& fake : fakes) fake.Open({0, 1, 2, 3});
  }
  void Route(uint64_t generation, const std::vector<int>& primaries) {
    v1::RoutingTable routing;
    routing.set_job_id("job-1");
    routing.set_generation(generation);
    for (const auto& server : servers) routing.add_servers()->set_address(server->address());
    for (int i = 0; i < kShards; ++i) {
      v1::ShardRoute* shard = routing.add_shards();
      shard->set_shard(i);
      shard->set_element_begin(i * kElements);
      shard->set_element_end((i + 1) * kElements);
      shard->set_server(primaries[static_cast<size_t>(i)]);
    }
    REQUIRE_OK(client.SetRouting(routing));
  }
  OpId Pull() {
    REQUIRE_OK_AND_ASSIGN(const OpId pull,
                          client.Pull(Iteration(0), PullMode::kTrain, &parameters));
    return pull;
  }
  bool WaitFor(OpId pull, int64_t end) { return client.WaitFor(pull, TableId(0), end); }

  SteadyClock clock;
  GatedServer fakes[2] = {GatedServer(1), GatedServer(2)};
  std::unique_ptr<GrpcServer> servers[2];
  TableArrays parameters = {std::vector<float>(kEnd)};
  PushPullClient client{{.job = "job-1",
                         .rank = Rank(0),
                         .incarnation = Incarnation(1),
                         .session = {.chunk_bytes_min = 16, .chunk_bytes_max = 16},
                         .push_bytes_max = kRoomBytes,
                         .push_patience = absl::Minutes(5)},
                        clock};
};

TEST_CASE("Client: what has arrived of a pull is told before the rest has come",
          "[worker][client]") {
  Cluster f;
  const OpId pull = f.Pull();
  f.fakes[0].Open({0, 1, 3});
  REQUIRE(f.WaitFor(pull, 2 * kElements));
  CHECK(f.parameters[0][2 * kElements - 1] == 1);
  CHECK(f.parameters[0][2 * kElements] == 0);
  SECTION("the rest follows") {
    f.fakes[0].Open({2});
    CHECK(f.WaitFor(pull, kEnd));
    CHECK(f.parameters[0][kEnd - 1] == 1);
    REQUIRE_OK_AND_ASSIGN(const OpResult result, f.client.Wait(pull));
    CHECK_FALSE(result.reread);
  }
  SECTION("an interrupt is told by Wait, and does not hide what is there") {
    f.client.Interrupt();
    CHECK_FALSE(f.WaitFor(pull, 2 * kElements + 1));  // This needs a part of shard 2.
    CHECK(f.WaitFor(pull, kElements));
    CHECK_STATUS(f.client.Wait(pull), absl::StatusCode::kCancelled, "interrupted");
    f.fakes[0].Open({2});
    CHECK(f.WaitFor(pull, kEnd));
    REQUIRE_OK(f.client.Wait(pull));
  }
  SECTION("nothing is told of a pull that was given up") {
    f.client.CancelPull(pull);
    CHECK_FALSE(f.WaitFor(pull, kElements));
  }
}

TEST_CASE("Client: an ended pull has all of it, unless it has failed", "[worker][client]") {
  Cluster f;
  f.fakes[0].Open({0, 1, 2, 3});
  const OpId pull = f.Pull();
  CHECK(f.WaitFor(pull, kEnd));
  CHECK(f.WaitFor(pull, kEnd));
  REQUIRE_OK(f.client.Wait(pull));
  CHECK_FALSE(f.WaitFor(pull, kEnd));  // The pull is forgotten.
}

TEST_CASE("Client: what is used is not written when it is read again from another primary",
          "[worker][client]") {
  Cluster f;
  const OpId pull = f.Pull();
  f.fakes[0].Open({0});
  REQUIRE(f.WaitFor(pull, kElements));
  f.fakes[1].Open({0, 1, 2, 3});
  f.Route(2, {1, 1, 1, 1});
  f.fakes[1].AwaitCame(kShards);
  CHECK(f.parameters[0][0] == 1);  // The new primary's answers do not overwrite it.
  CHECK_FALSE(f.WaitFor(pull, 2 * kElements));
  REQUIRE_OK_AND_ASSIGN(const OpResult result, f.client.Wait(pull));
  CHECK(result.reread);
  CHECK(f.parameters[0] == std::vector<float>(kEnd, 2));
}

TEST_CASE("Client: of the pushes that wait the lowest shard goes first", "[worker][client]") {
  Cluster f;
  const auto gradient = std::make_shared<TableArrays>(TableArrays{std::vector<float>(kEnd)});
  REQUIRE_OK_AND_ASSIGN(const OpId push,
                        f.client.Push(Iteration(0), {}, gradient, PushStart::kHeld));
  f.client.Release(push, TableId(0), 3 * kElements);
  CHECK(f.fakes[0].AwaitCame(1) == std::vector<int>{3});  // There is no room for another.
  for (const int shard : {2, 1, 0}) f.client.Release(push, TableId(0), shard * kElements);
  f.fakes[0].Open({0, 1, 2, 3});
  REQUIRE_OK(f.client.Wait(push));
  CHECK(f.fakes[0].AwaitCame(4) == std::vector<int>{3, 0, 1, 2});
}

}  // namespace
}  // namespace capstan::worker::parts_test
