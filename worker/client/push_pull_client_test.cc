#include "worker/client/push_pull_client.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/net/grpc/grpc_server.h"
#include "common/sparse/key_batch.h"
#include "common/testing/status_matchers.h"

namespace capstan::worker::push_pull_client_test {
namespace {

// A server of two shards that adds pushed values and answers as told.
class FakeServer final : public v1::ParameterServer::Service {
 public:
  grpc::Status Push(grpc::ServerContext*, const v1::PushRequest* request,
                    v1::PushResponse* response) override {
    absl::MutexLock lock(&mutex_);
    ++pushes_here_;
    pushes_at_once_ = std::max(pushes_at_once_, pushes_here_);
    auto company = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pushes_at_once_ > 1; };
    mutex_.AwaitWithTimeout(absl::Condition(&company), push_patience_);
    --pushes_here_;
    for (const v1::ShardPush& shard : request->shards()) sequences_.push_back(shard.sequence());
    if (fail_pushes_ > 0) {
      --fail_pushes_;
      return {grpc::StatusCode::UNAVAILABLE, "try again"};
    }
    for (const v1::ShardPush& shard : request->shards()) {
      const auto* values = reinterpret_cast<const float*>(shard.values().data());
      for (size_t i = 0; i < 4; ++i)
        values_[static_cast<size_t>(shard.shard()) * 4 + i] += values[i];
      response->add_shards()->set_version(1);
    }
    return grpc::Status::OK;
  }

  grpc::Status Pull(grpc::ServerContext* context, const v1::PullRequest* request,
                    v1::PullResponse* response) override {
    absl::MutexLock lock(&mutex_);
    ++pulls_;
    while (blocked_ && !context->IsCancelled()) {
      changed_.WaitWithTimeout(&mutex_, absl::Milliseconds(5));
    }
    if (fence_) return {grpc::StatusCode::ABORTED, "incarnation 1 is fenced by 2"};
    for (const v1::ShardPull& shard : request->shards()) {
      v1::ShardValues* out = response->add_shards();
      out->set_outcome(v1::ShardValues::VALUES);
      out->set_version(3);
      out->set_staleness(shard.shard());
      out->set_value_type(v1::FLOAT32);
      out->set_values(&values_[static_cast<size_t>(shard.shard()) * 4], bytes_);
    }
    return grpc::Status::OK;
  }

  grpc::Status GetRouting(grpc::ServerContext*, const v1::GetRoutingRequest* request,
                          v1::GetRoutingResponse* response) override {
    absl::MutexLock lock(&mutex_);
    if (request->job_id() != routing_.job_id()) return {grpc::StatusCode::NOT_FOUND, "no such job"};
    *response->mutable_routing() = routing_;
    return grpc::Status::OK;
  }

  void KnowRouting(const v1::RoutingTable& routing) {
    absl::MutexLock lock(&mutex_);
    routing_ = routing;
  }
  void Set(int fail_pushes, bool blocked, bool fence, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    fail_pushes_ = fail_pushes;
    blocked_ = blocked;
    fence_ = fence;
    bytes_ = bytes;
  }
  // Makes pushes wait this long for another push to be there at the same time.
  void HoldPushes(absl::Duration patience) {
    absl::MutexLock lock(&mutex_);
    push_patience_ = patience;
  }
  int pushes_at_once() {
    absl::MutexLock lock(&mutex_);
    return pushes_at_once_;
  }
  void AwaitPulls(int count) {
    absl::MutexLock lock(&mutex_);
    auto enough = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pulls_ >= count; };
    mutex_.Await(absl::Condition(&enough));
  }
  std::vector<uint64_t> Sequences() {
    absl::MutexLock lock(&mutex_);
    return sequences_;
  }

 private:
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::vector<float> values_ = std::vector<float>(8);
  std::vector<uint64_t> sequences_;
  int fail_pushes_ = 0;
  bool blocked_ = false;
  bool fence_ = false;
  size_t bytes_ = 16;
  int pulls_ = 0;
  absl::Duration push_patience_;
  int pushes_here_ = 0, pushes_at_once_ = 0;
  v1::RoutingTable routing_;
};

struct Fixture {
  Fixture() {
    auto started = GrpcServer::Start({.services = {&fake}});
    REQUIRE_OK(started);
    server = *std::move(started);
    REQUIRE_OK(client.SetRouting(Routing()));
  }
  v1::RoutingTable Routing() const {
    v1::RoutingTable routing;
    routing.set_generation(1);
    routing.add_servers()->set_address(server->address());
    for (int i = 0; i < 2; ++i) {
      v1::ShardRoute* shard = routing.add_shards();
      shard->set_shard(i);
      shard->set_element_begin(i * 4);
      shard->set_element_end(i * 4 + 4);
    }
    return routing;
  }

  SteadyClock clock;
  FakeServer fake;
  std::unique_ptr<GrpcServer> server;
  TableArrays parameters = {std::vector<float>(8)};
  PushPullClient client{{.job = "job-1", .rank = Rank(0), .incarnation = Incarnation(1)}, clock};
};

// Two servers; shard 0 is on the first, shard 1 on the second.
struct TwoServers {
  TwoServers() {
    for (size_t s = 0; s < 2; ++s) {
      auto started = GrpcServer::Start({.services = {&fakes[s]}});
      REQUIRE_OK(started);
      servers[s] = *std::move(started);
    }
    REQUIRE_OK(client.SetRouting(Table(1, {0, 1})));
  }
  v1::RoutingTable Table(uint64_t generation, std::vector<int> primaries) const {
    v1::RoutingTable routing;
    routing.set_job_id("job-1");
    routing.set_generation(generation);
    for (const auto& server : servers) {
      v1::ServerAddress* address = routing.add_servers();
      address->set_address(server->address());
      address->set_incarnation(1);
    }
    for (int i = 0; i < 2; ++i) {
      v1::ShardRoute* shard = routing.add_shards();
      shard->set_shard(i);
      shard->set_element_begin(i * 4);
      shard->set_element_end(i * 4 + 4);
      shard->set_server(primaries[static_cast<size_t>(i)]);
      shard->set_term(generation);
    }
    return routing;
  }

  SteadyClock clock;
  FakeServer fakes[2];
  std::unique_ptr<GrpcServer> servers[2];
  TableArrays parameters = {std::vector<float>(8)};
  PushPullClient client{{.job = "job-1",
                         .rank = Rank(0),
                         .incarnation = Incarnation(1),
                         .session = {.ask_servers_after = absl::Milliseconds(1)}},
                        clock};
};

std::shared_ptr<TableArrays> Gradient() {
  return std::make_shared<TableArrays>(TableArrays{{1, 2, 3, 4, 5, 6, 7, 8}});
}

TEST_CASE("Client: what is pushed is added and comes back with a pull", "[worker][client]") {
  Fixture f;
  REQUIRE_OK_AND_ASSIGN(const OpId push, f.client.Push(Iteration(0), {}, Gradient()));
  REQUIRE_OK_AND_ASSIGN(const OpId pull,
                        f.client.Pull(Iteration(1), PullMode::kTrain, &f.parameters));
  REQUIRE_OK(f.client.Wait(push));
  REQUIRE_OK_AND_ASSIGN(const OpResult result, f.client.Wait(pull));
  CHECK(result.staleness == 1);
  CHECK(f.parameters == *Gradient());
}

TEST_CASE("Client: a push that the server could not take is repeated with its sequence",
          "[worker][client]") {
  Fixture f;
  f.fake.Set(2, false, false, 16);
  REQUIRE_OK_AND_ASSIGN(const OpId push, f.client.Push(Iteration(0), {}, Gradient()));
  REQUIRE_OK(f.client.Wait(push));
  CHECK(f.fake.Sequences() == std::vector<uint64_t>{1, 1, 1, 1, 1, 1});
}

// Pushes two shards, a message each, of 16 bytes that count as 64. The server holds each for
// `hold`, or until the other one is there, too. Returns how many were there at once.
int PushesAtOnce(int64_t push_bytes_max, absl::Duration patience, absl::Duration hold) {
  Fixture f;
  PushPullClient client({.job = "job-1",
                         .rank = Rank(0),
                         .incarnation = Incarnation(1),
                         .session = {.chunk_bytes_min = 16, .chunk_bytes_max = 16},
                         .push_bytes_max = push_bytes_max,
                         .push_patience = patience},
                        f.clock);
  REQUIRE_OK(client.SetRouting(f.Routing()));
  f.fake.HoldPushes(hold);
  REQUIRE_OK_AND_ASSIGN(const OpId push, client.Push(Iteration(0), {}, Gradient()));
  REQUIRE_OK(client.Wait(push));
  return f.fake.pushes_at_once();
}

TEST_CASE("Client: no more bytes are on their way to a server than it may hold",
          "[worker][client]") {
  const absl::Duration minute = absl::Minutes(1);
  CHECK(PushesAtOnce(64, minute, absl::Milliseconds(100)) == 1);
  CHECK(PushesAtOnce(128, minute, absl::Seconds(20)) == 2);
}

TEST_CASE("Client: a push without room goes once its patience is at its end", "[worker][client]") {
  CHECK(PushesAtOnce(64, absl::Milliseconds(20), absl::Seconds(20)) == 2);
}

TEST_CASE("Client: a waiting pull can be interrupted and given up", "[worker][client]") {
  Fixture f;
  f.fake.Set(0, true, false, 16);
  REQUIRE_OK_AND_ASSIGN(const OpId pull,
                        f.client.Pull(Iteration(5), PullMode::kTrain, &f.parameters));
  std::thread interrupter([&f] {
    f.fake.AwaitPulls(1);
    f.client.Interrupt();
  });
  CHECK(absl::IsCancelled(f.client.Wait(pull).status()));
  interrupter.join();
  CHECK(f.client.CurrentWait().waiting);
  f.client.CancelPull(pull);
  CHECK_FALSE(f.client.CurrentWait().waiting);
  f.fake.Set(0, false, false, 16);
  REQUIRE_OK_AND_ASSIGN(const OpId again,
                        f.client.Pull(Iteration(4), PullMode::kTrain, &f.parameters));
  REQUIRE_OK(f.client.Wait(again));
}

TEST_CASE("Client: fenced off, it stops for good", "[worker][client]") {
  Fixture f;
  f.fake.Set(0, false, true, 16);
  REQUIRE_OK_AND_ASSIGN(const OpId pull,
                        f.client.Pull(Iteration(0), PullMode::kTrain, &f.parameters));
  CHECK_STATUS(f.client.Wait(pull), absl::StatusCode::kAborted, "fenced by 2");
  CHECK_STATUS(f.client.Push(Iteration(0), {}, Gradient()), absl::StatusCode::kAborted, "fenced");
}

TEST_CASE("Client: a reply of the wrong length is an error, not a crash", "[worker][client]") {
  Fixture f;
  f.fake.Set(0, false, false, 3);
  REQUIRE_OK_AND_ASSIGN(const OpId pull,
                        f.client.Pull(Iteration(0), PullMode::kTrain, &f.parameters));
  CHECK_STATUS(f.client.Wait(pull), absl::StatusCode::kInternal, "3 bytes, expected 16");
}

TEST_CASE("Client: arrays shorter than the table are refused", "[worker][client]") {
  Fixture f;
  TableArrays small = {std::vector<float>(7)};
  CHECK_STATUS(f.client.Pull(Iteration(0), PullMode::kTrain, &small),
               absl::StatusCode::kInvalidArgument, "7 elements here, expected at least 8");
}

TEST_CASE("Client: without a word of the scheduler it learns of a new primary from a server",
          "[worker][client]") {
  TwoServers f;
  f.servers[1]->Shutdown(absl::ZeroDuration());
  f.fakes[0].KnowRouting(f.Table(2, {0, 0}));
  REQUIRE_OK_AND_ASSIGN(const OpId push, f.client.Push(Iteration(0), {}, Gradient()));
  REQUIRE_OK(f.client.Wait(push));
  CHECK(f.client.routing_generation() == Generation(2));
  CHECK_FALSE(f.client.needs_routing());
  REQUIRE_OK_AND_ASSIGN(const OpId pull,
                        f.client.Pull(Iteration(1), PullMode::kTrain, &f.parameters));
  REQUIRE_OK(f.client.Wait(pull));
  CHECK(f.parameters[0][7] == 8);
}

TEST_CASE("Client: a pull that a lost server holds goes on at the new primary",
          "[worker][client]") {
  TwoServers f;
  f.fakes[1].Set(0, /*blocked=*/true, false, 16);
  REQUIRE_OK_AND_ASSIGN(const OpId pull,
                        f.client.Pull(Iteration(0), PullMode::kTrain, &f.parameters));
  f.fakes[1].AwaitPulls(1);
  REQUIRE_OK(f.client.SetRouting(f.Table(2, {0, 0})));
  REQUIRE_OK(f.client.Wait(pull));
  f.fakes[1].Set(0, false, false, 16);
}

TEST_CASE("Client: a routing table of another number of shards is refused", "[worker][client]") {
  TwoServers f;
  v1::RoutingTable routing = f.Table(2, {0, 0});
  routing.mutable_shards()->RemoveLast();
  CHECK_STATUS(f.client.SetRouting(routing), absl::StatusCode::kInvalidArgument,
               "1 shards, expected 2");
}

TEST_CASE("Client: a routing table that names no server is refused", "[worker][client]") {
  Fixture f;
  v1::RoutingTable routing;
  routing.set_generation(2);
  routing.add_shards()->set_server(3);
  CHECK_STATUS(f.client.SetRouting(routing), absl::StatusCode::kInvalidArgument, "names server 3");
}

// A server of one bucket that keeps lists of keys, until it is told to forget them.
class ListServer final : public v1::ParameterServer::Service {
 public:
  grpc::Status Push(grpc::ServerContext*, const v1::PushRequest* request,
                    v1::PushResponse* response) override {
    const v1::ShardPush& shard = request->shards(0);
    absl::MutexLock lock(&mutex_);
    said_.push_back(absl::StrCat("push ", shard.sequence(), shard.has_key_list() ? " name" : " ",
                                 shard.values().size()));
    if (shard.has_key_list() && !known_) {
      response->set_unknown_key_list(true);
      return grpc::Status::OK;
    }
    response->add_shards()->set_version(1);
    return grpc::Status::OK;
  }
  grpc::Status Pull(grpc::ServerContext*, const v1::PullRequest* request,
                    v1::PullResponse* response) override {
    const v1::ShardPull& shard = request->shards(0);
    absl::MutexLock lock(&mutex_);
    said_.push_back(
        absl::StrCat("pull ", shard.keys().size(), shard.has_key_list() ? " name" : ""));
    if (shard.keys().empty() && !known_) {
      response->set_unknown_key_list(true);
      return grpc::Status::OK;
    }
    known_ = true;
    v1::ShardValues* out = response->add_shards();
    out->set_outcome(v1::ShardValues::VALUES);
    out->set_value_type(v1::FLOAT32);
    out->set_values(std::string(static_cast<size_t>(shard.key_list().count()) * 4, 0));
    return grpc::Status::OK;
  }
  void Forget() {
    absl::MutexLock lock(&mutex_);
    known_ = false;
  }
  std::vector<std::string> Said() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(said_, {});
  }

 private:
  absl::Mutex mutex_;
  bool known_ = false;
  std::vector<std::string> said_;
};

TEST_CASE("PushPullClient: keys go over the wire once, and again where a server has lost them",
          "[worker][client]") {
  SteadyClock clock;
  ListServer fake;
  REQUIRE_OK_AND_ASSIGN(const auto server, GrpcServer::Start({.services = {&fake}}));
  TableArrays rows = {std::vector<float>(100)};
  PushPullClient client({.job = "job-1", .rank = Rank(0), .incarnation = Incarnation(1)}, clock);
  v1::RoutingTable routing;
  routing.set_generation(1);
  routing.add_servers()->set_address(server->address());
  routing.add_shards()->set_element_end(1);
  REQUIRE_OK(client.SetRouting(routing));
  std::vector<uint64_t> hundred;
  for (uint64_t key = 0; key < 100; ++key) hundred.push_back(key);
  KeyBatch batch = MakeKeyBatch(hundred, 1);
  NameLists(&batch);
  const AllTableKeys keys = {{.batch = std::make_shared<const KeyBatch>(batch), .dim = 1}};
  const auto pull = [&] {
    REQUIRE_OK_AND_ASSIGN(const OpId op, client.Pull(Iteration(0), PullMode::kTrain, &rows, keys));
    REQUIRE_OK(client.Wait(op));
  };
  const auto push = [&] {
    REQUIRE_OK_AND_ASSIGN(const OpId op,
                          client.Push(Iteration(0), {}, std::make_shared<const TableArrays>(rows),
                                      PushStart::kNow, keys));
    REQUIRE_OK(client.Wait(op));
  };
  using Said = std::vector<std::string>;
  pull();
  push();
  pull();
  CHECK(fake.Said() == Said{"pull 800 name", "push 1 name400", "pull 0 name"});
  fake.Forget();
  push();  // It is sent again with the same sequence and the keys.
  CHECK(fake.Said() == Said{"push 2 name400", "push 2 1200"});
  pull();
  push();
  CHECK(fake.Said() == Said{"pull 800 name", "push 3 name400"});
  CHECK(client.counts().named_lists == 3);
  CHECK(client.counts().unknown_lists == 1);
}

}  // namespace
}  // namespace capstan::worker::push_pull_client_test
