// Tests of pulls that are cancelled at any moment: later pulls must not take the values that were
// written until then for another version.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/net/grpc/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "worker/client/push_pull_client.h"

namespace capstan::worker::cancelled_pull_test {
namespace {

constexpr int kShards = 4;
constexpr int64_t kElements = 1 << 20;  // Each shard has 4 MiB, a message of its own.

// Holds one version of all shards; each element is that number. Clients that hold it get no values.
class VersionedServer final : public v1::ParameterServer::Service {
 public:
  grpc::Status Pull(grpc::ServerContext*, const v1::PullRequest* request,
                    v1::PullResponse* response) override {
    const int version = this->version();
    for (const v1::ShardPull& shard : request->shards()) {
      v1::ShardValues* out = response->add_shards();
      out->set_version(version);
      if (shard.held_version() == version) {
        out->set_outcome(v1::ShardValues::UNCHANGED);
        continue;
      }
      out->set_outcome(v1::ShardValues::VALUES);
      out->set_value_type(v1::FLOAT32);
      const std::vector<float> values(kElements, static_cast<float>(version));
      out->set_values(values.data(), values.size() * sizeof(float));
    }
    return grpc::Status::OK;
  }

  void Set(int version) {
    absl::MutexLock lock(&mutex_);
    version_ = version;
  }

 private:
  int version() {
    absl::MutexLock lock(&mutex_);
    return version_;
  }
  absl::Mutex mutex_;
  int version_ ABSL_GUARDED_BY(mutex_) = 1;
};

v1::RoutingTable Routing(const std::string& address) {
  v1::RoutingTable routing;
  routing.set_generation(1);
  routing.add_servers()->set_address(address);
  for (int i = 0; i < kShards; ++i) {
    v1::ShardRoute* shard = routing.add_shards();
    shard->set_shard(i);
    shard->set_element_begin(i * kElements);
    shard->set_element_end((i + 1) * kElements);
  }
  return routing;
}

TEST_CASE("Client: what a cancelled pull has written is not taken for the version before",
          "[worker][client]") {
  VersionedServer fake;
  REQUIRE_OK_AND_ASSIGN(const auto server, GrpcServer::Start({.services = {&fake}}));
  const SteadyClock clock;
  TableArrays parameters = {std::vector<float>(kShards * kElements)};
  PushPullClient client({.job = "job-1", .rank = Rank(0), .incarnation = Incarnation(1)}, clock);
  REQUIRE_OK(client.SetRouting(Routing(server->address())));
  const auto pull = [&] { return client.Pull(Iteration(0), PullMode::kTrain, &parameters); };
  const Instant begin = clock.Now();
  REQUIRE_OK_AND_ASSIGN(const OpId first, pull());
  REQUIRE_OK(client.Wait(first));
  const absl::Duration whole = clock.Now() - begin;

  std::mt19937 draw(5);
  for (int i = 0; i < 60; ++i) {
    fake.Set(2);
    REQUIRE_OK_AND_ASSIGN(const OpId cancelled, pull());
    const Instant until = clock.Now() + whole * (static_cast<double>(draw() % 1000) / 1000);
    while (clock.Now() < until) {
    }
    client.CancelPull(cancelled);
    fake.Set(1);
    REQUIRE_OK_AND_ASSIGN(const OpId after, pull());
    REQUIRE_OK(client.Wait(after));
    CAPTURE(i);
    REQUIRE(std::count(parameters[0].begin(), parameters[0].end(), 1.0f) == kShards * kElements);
  }
}

}  // namespace
}  // namespace capstan::worker::cancelled_pull_test
