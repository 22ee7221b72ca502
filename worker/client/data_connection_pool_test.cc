// Tests of the client's data connections, with a fake server that drops them and with the real
// service.
#include "common/net/data/data_connection_pool.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/net/data/data_server.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/net/socket/start_thread.h"
#include "common/security/capability.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "common/wire/tensor_message.h"
#include "server/engine/job/held_jobs.h"
#include "server/engine/testing/job_fixture.h"
#include "server/rpc/deadline_timer.h"
#include "server/rpc/parameter_service.h"
#include "worker/client/push_pull_client.h"

namespace capstan::worker::data_connection_pool_test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

std::shared_ptr<const TableArrays> Ones(size_t count) {
  return std::make_shared<const TableArrays>(TableArrays{std::vector<float>(count, 1.0f)});
}

// Adds up the first value of each new push, over gRPC or data; drops data connections as told.
class FakeServer final : public v1::ParameterServer::Service {
 public:
  ~FakeServer() override { CloseData(); }

  grpc::Status Push(grpc::ServerContext*, const v1::PushRequest* request,
                    v1::PushResponse* response) override {
    absl::MutexLock lock(&mutex_);
    ++grpc_calls_;
    *response = AddLocked(*request);
    return grpc::Status::OK;
  }
  grpc::Status Pull(grpc::ServerContext*, const v1::PullRequest*,
                    v1::PullResponse* response) override {
    absl::MutexLock lock(&mutex_);
    ++grpc_calls_;
    *response = SumLocked();
    return grpc::Status::OK;
  }
  grpc::Status OpenDataConnections(grpc::ServerContext*, const v1::OpenDataConnectionsRequest*,
                                   v1::OpenDataConnectionsResponse* response) override {
    absl::MutexLock lock(&mutex_);
    ++asked_;
    if (!answer_.ok()) return ToGrpcStatus(answer_);
    if (absl::Status opened = OpenLocked(); !opened.ok()) return ToGrpcStatus(opened);
    response->set_port(port_ > 0 ? port_ : data_->port());
    response->set_token(data_->token());
    response->set_push_connections(push_connections_);
    return grpc::Status::OK;
  }

  void Refuse(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    answer_ = status;
  }
  void TellPort(int port) {
    absl::MutexLock lock(&mutex_);
    port_ = port;
  }
  void TellPushConnections(int count) {
    absl::MutexLock lock(&mutex_);
    push_connections_ = count;
  }
  // Records the next push that comes by a data connection, and then drops the connection.
  void LoseNextAnswer() {
    absl::MutexLock lock(&mutex_);
    lose_ = true;
  }
  void HoldPulls() {
    absl::MutexLock lock(&mutex_);
    hold_pulls_ = true;
  }
  // Returns once all calls that came by data connections have ended.
  void CloseData() {
    std::unique_ptr<DataServer> closed;
    {
      absl::MutexLock lock(&mutex_);
      closed = std::move(data_);
    }
  }
  void Await(const std::function<bool(const FakeServer&)>& condition) {
    absl::MutexLock lock(&mutex_);
    auto holds = [&] { return condition(*this); };
    REQUIRE(mutex_.AwaitWithTimeout(absl::Condition(&holds), kPatience));
  }
  int DataCalls() {
    absl::MutexLock lock(&mutex_);
    return data_calls_;
  }
  // These are read in Await's condition, or when nothing runs any more.
  int grpc_calls() const { return grpc_calls_; }
  int data_calls() const { return data_calls_; }
  int asked() const { return asked_; }
  int held() const { return held_; }
  int cancelled() const { return cancelled_; }
  const std::vector<uint64_t>& sequences() const { return sequences_; }
  float sum() const { return sum_; }

 private:
  // Uses no REQUIRE, because Catch2 allows it only on the test's own thread.
  absl::Status OpenLocked() {
    if (data_ != nullptr) return absl::OkStatus();
    auto started = DataServer::Start(
        {.listen = "127.0.0.1:0",
         .handler = [this](DataMethod method, absl::Cord payload, DataServer::Done done) {
           return StartData(method, payload, std::move(done));
         }});
    if (started.ok()) data_ = *std::move(started);
    return started.status();
  }
  DataServer::Cancel StartData(DataMethod method, const absl::Cord& payload,
                               DataServer::Done done) {
    absl::Cord answer;
    {
      absl::MutexLock lock(&mutex_);
      ++data_calls_;
      if (method == DataMethod::kPull && hold_pulls_) {
        ++held_;
        return [this, done] {
          absl::MutexLock inner(&mutex_);
          if (cancelled_++ == 0) done(absl::CancelledError("as it was told"));
        };
      }
      if (method == DataMethod::kPush) {
        absl::StatusOr<PushMessage> push = capstan::DecodePush(payload);
        if (!push.ok()) {
          done(push.status());
          return nullptr;
        }
        answer = absl::Cord(AddLocked(Attach(*std::move(push))).SerializeAsString());
        if (std::exchange(lose_, false)) {
          lost_ = done;
          return [this] { std::exchange(lost_, nullptr)(absl::CancelledError("lost")); };
        }
      } else {
        answer = Encode(Detach(SumLocked()));
      }
    }
    done(answer);
    return nullptr;
  }
  v1::PushResponse AddLocked(const v1::PushRequest& request) {
    v1::PushResponse response;
    const v1::ShardPush& shard = request.shards(0);
    const bool known = !sequences_.empty() && sequences_.back() == shard.sequence();
    sequences_.push_back(shard.sequence());
    if (!known) sum_ += *reinterpret_cast<const float*>(shard.values().data());
    response.add_shards()->set_version(1);
    return response;
  }
  v1::PullResponse SumLocked() const {
    v1::PullResponse response;
    v1::ShardValues* shard = response.add_shards();
    shard->set_outcome(v1::ShardValues::VALUES);
    shard->set_value_type(v1::FLOAT32);
    const std::vector<float> values(4, sum_);
    shard->set_values(values.data(), values.size() * sizeof(float));
    return response;
  }

  absl::Mutex mutex_;
  absl::Status answer_;
  int port_ = 0;
  int push_connections_ = 0;
  bool lose_ = false, hold_pulls_ = false;
  DataServer::Done lost_;
  int grpc_calls_ = 0, data_calls_ = 0, asked_ = 0, held_ = 0, cancelled_ = 0;
  float sum_ = 0;
  std::vector<uint64_t> sequences_;
  std::unique_ptr<DataServer> data_;
};

v1::RoutingTable OneShard(const std::string& address) {
  v1::RoutingTable routing;
  routing.set_generation(1);
  routing.add_servers()->set_address(address);
  routing.add_shards()->set_element_end(4);
  return routing;
}

struct Fixture {
  Fixture() {
    auto started = GrpcServer::Start({.services = {&fake}});
    REQUIRE_OK(started);
    server = *std::move(started);
  }
  // Called after the fake server was told what to do.
  void Connect(bool data_connections = true) {
    client = std::make_unique<PushPullClient>(
        PushPullClient::Options{.job = "job-1",
                                .rank = Rank(0),
                                .incarnation = Incarnation(1),
                                .data_connections = data_connections},
        clock);
    REQUIRE_OK(client->SetRouting(OneShard(server->address())));
  }
  void Push() {
    REQUIRE_OK_AND_ASSIGN(const OpId op, client->Push(Iteration(0), {}, Ones(4)));
    REQUIRE_OK(client->Wait(op));
    ++pushes;
  }
  void Pull() {
    REQUIRE_OK_AND_ASSIGN(const OpId op, client->Pull(Iteration(1), PullMode::kTrain, &parameters));
    REQUIRE_OK(client->Wait(op));
    CHECK(parameters[0] == std::vector<float>(4, static_cast<float>(pushes)));
  }
  // Pushes until one has come by a data connection; a push on a lost connection does not count.
  void PushUntilData() {
    const int before = fake.DataCalls();
    const Instant give_up = clock.Now() + kPatience;
    while (fake.DataCalls() == before) {
      REQUIRE(clock.Now() < give_up);
      Push();
    }
  }

  SteadyClock clock;
  FakeServer fake;
  std::unique_ptr<GrpcServer> server;
  TableArrays parameters = {std::vector<float>(4)};
  std::unique_ptr<PushPullClient> client;
  int pushes = 0;
};

TEST_CASE("Data connection pool: calls go over data connections once these are open",
          "[worker][client]") {
  Fixture f;
  f.Connect();
  f.PushUntilData();
  const int by_grpc = f.fake.grpc_calls();
  f.Push();
  f.Pull();
  CHECK(f.fake.grpc_calls() == by_grpc);
  CHECK(f.fake.asked() == 1);
  f.client.reset();
  f.server.reset();
  CHECK(f.fake.sum() == static_cast<float>(f.pushes));
}

TEST_CASE(
    "Data connection pool: a server that has none is asked once, one that does not want to again",
    "[worker][client]") {
  Fixture f;
  SECTION("unimplemented") { f.fake.Refuse(absl::UnimplementedError("none here")); }
  SECTION("a port where nobody listens") { f.fake.TellPort(1); }
  f.Connect();
  for (int i = 0; i < 20; ++i) f.Push();
  f.Pull();
  f.fake.Await([](const FakeServer& fake) { return fake.asked() >= 1; });
  f.client.reset();
  CHECK(f.fake.data_calls() == 0);
  CHECK(f.fake.grpc_calls() == 21);
}

TEST_CASE("Data connection pool: not asked for, nothing is opened", "[worker][client]") {
  Fixture f;
  f.Connect(/*data_connections=*/false);
  for (int i = 0; i < 5; ++i) f.Push();
  f.client.reset();
  f.server.reset();
  CHECK(f.fake.asked() == 0);
}

TEST_CASE(
    "Data connection pool: a push whose answer is lost goes again with its sequence, over gRPC",
    "[worker][client]") {
  Fixture f;
  f.Connect();
  f.PushUntilData();
  f.fake.LoseNextAnswer();
  const auto count = f.fake.sequences().size();
  REQUIRE_OK_AND_ASSIGN(const OpId op, f.client->Push(Iteration(0), {}, Ones(4)));
  f.fake.Await([&](const FakeServer& fake) { return fake.sequences().size() > count; });
  f.fake.CloseData();
  REQUIRE_OK(f.client->Wait(op));
  ++f.pushes;
  f.Pull();
  const auto& sequences = f.fake.sequences();
  REQUIRE(sequences.size() == count + 2);
  CHECK(sequences[count] == sequences[count + 1]);
}

TEST_CASE("Data connection pool: connections that were lost are opened again, a while later",
          "[worker][client]") {
  Fixture f;
  f.Connect();
  f.PushUntilData();
  f.fake.CloseData();
  f.PushUntilData();
  f.Pull();
  CHECK(f.fake.asked() == 2);
}

TEST_CASE("Data connection pool: a pull that is given up is cancelled at the server",
          "[worker][client]") {
  Fixture f;
  f.Connect();
  f.PushUntilData();
  f.fake.HoldPulls();
  REQUIRE_OK_AND_ASSIGN(const OpId op,
                        f.client->Pull(Iteration(1), PullMode::kTrain, &f.parameters));
  f.fake.Await([](const FakeServer& fake) { return fake.held() == 1; });
  SECTION("by its operation") { f.client->CancelPull(op); }
  SECTION("by the end of the client") { f.client.reset(); }
  f.fake.Await([](const FakeServer& fake) { return fake.cancelled() == 1; });
}

TEST_CASE(
    "Data connection pool: where there is no thread to be had it stays shut, and is tried again",
    "[worker][client]") {
  const int refused = GENERATE(0, 1);  // The thread that connects, or the one that reads answers.
  Fixture f;
  ManualClock clock;
  std::atomic<int> asked = 0;
  const auto stub =
      v1::ParameterServer::NewStub(MakeChannel(f.server->address(), ChannelKind::kControl));
  DataConnectionPool pool(
      {.stub = stub.get(),
       .server = f.server->address(),
       .clock = &clock,
       .start_thread = [&](std::function<void()> body) -> absl::StatusOr<std::thread> {
         if (asked++ == refused) return absl::UnavailableError("no more threads");
         return StartThread(std::move(body));
       }});
  const Instant give_up = f.clock.Now() + kPatience;
  const auto until = [&](const std::function<bool()>& condition) {
    while (!condition()) REQUIRE(f.clock.Now() < give_up);
  };
  pool.Offer(clock.Now());
  CHECK_FALSE(pool.WantsOffer(clock.Now() + absl::Hours(1)));  // The server is being asked.
  until([&] { return pool.WantsOffer(clock.Now() + absl::Hours(1)); });
  CHECK(asked == refused + 1);
  CHECK(pool.For(DataMethod::kPush) == nullptr);
  clock.Advance(absl::Hours(1));
  pool.Offer(clock.Now());
  until([&] { return pool.For(DataMethod::kPush) != nullptr; });
}

TEST_CASE("Data connection pool: pushes take turns on as many connections as the server wishes",
          "[worker][client]") {
  const auto [told, expected] = GENERATE(table<int, size_t>({{0, 1}, {1, 1}, {3, 3}, {99, 16}}));
  Fixture f;
  f.fake.TellPushConnections(told);
  const SteadyClock clock;
  const auto stub =
      v1::ParameterServer::NewStub(MakeChannel(f.server->address(), ChannelKind::kControl));
  const auto open = [&](DataConnectionPool& pool) {
    pool.Offer(clock.Now());
    const Instant give_up = clock.Now() + kPatience;
    while (pool.For(DataMethod::kPush) == nullptr) REQUIRE(clock.Now() < give_up);
  };
  DataConnectionPool pool({.stub = stub.get(), .server = f.server->address(), .clock = &clock});
  open(pool);
  std::vector<std::shared_ptr<DataCaller>> turns;
  for (size_t i = 0; i < 2 * expected; ++i) turns.push_back(pool.For(DataMethod::kPush));
  CHECK(std::set<std::shared_ptr<DataCaller>>(turns.begin(), turns.end()).size() == expected);
  CHECK(std::equal(turns.begin(), turns.begin() + std::ssize(turns) / 2,
                   turns.begin() + std::ssize(turns) / 2));
  const auto pulls = pool.For(DataMethod::kPull);
  CHECK(pulls == pool.For(DataMethod::kPull));
  CHECK(std::count(turns.begin(), turns.end(), pulls) == 0);
  DataConnectionPool replicas(
      {.stub = stub.get(), .server = f.server->address(), .clock = &clock, .to_replica = true});
  open(replicas);
  CHECK(replicas.For(DataMethod::kPush) == replicas.For(DataMethod::kPull));
}

// The real service with a job of two shards under ASP.
class RealServer {
 public:
  explicit RealServer(int push_connections, std::optional<CapabilityKey> key = {})
      : timer_(&clock_, [this](Instant now) { return jobs_.Tick(now); }) {
    timer_.Start();
    REQUIRE_OK(service_.ListenForData("127.0.0.1:0", "", push_connections));
    auto started = GrpcServer::Start({.services = {&service_}});
    REQUIRE_OK(started);
    server_ = *std::move(started);
    server::TestJobOptions options{.consistency = {.mode = ConsistencyMode::kAsp}};
    options.clock = &clock_;
    options.capability_key = std::move(key);
    options.schedule_tick = [this](Instant at) { timer_.Schedule(at); };
    job_ = server::MakeTestJob(options);
    jobs_.Add(job_);
  }
  ~RealServer() {
    jobs_.DropAll(absl::UnavailableError("the server stops"));
    server_.reset();
    timer_.Stop();
  }
  v1::RoutingTable Routing() const {
    v1::RoutingTable routing = server::TestRouting(1);
    routing.mutable_servers(0)->set_address(server_->address());
    return routing;
  }
  server::ParameterService& service() { return service_; }
  int64_t Recorded() const { return job_->Describe().at(0).pushes_applied(); }

 private:
  SteadyClock clock_;
  server::HeldJobs jobs_;
  server::DeadlineTimer timer_;
  std::shared_ptr<server::HeldJob> job_;
  server::ParameterService service_{&jobs_};
  std::unique_ptr<GrpcServer> server_;
};

TEST_CASE(
    "Data connection pool: pushes are applied once each though connections are lost under them",
    "[worker][client]") {
  RealServer server(GENERATE(1, 3));
  SteadyClock clock;
  PushPullClient client({.job = "lenet-1",
                         .rank = Rank(0),
                         .incarnation = Incarnation(1),
                         .session = {.chunk_bytes_min = 16, .chunk_bytes_max = 32},
                         .shared_memory_bytes = 0},
                        clock);
  REQUIRE_OK(client.SetRouting(server.Routing()));
  int pushes = 0;
  const auto push = [&] {
    REQUIRE_OK_AND_ASSIGN(const OpId op, client.Push(Iteration(pushes), {}, Ones(24)));
    ++pushes;
    return op;
  };
  const Instant give_up = clock.Now() + kPatience;
  while (client.counts().data_messages == 0) {
    REQUIRE(clock.Now() < give_up);
    REQUIRE_OK(client.Wait(push()));
  }
  std::vector<OpId> begun;
  for (int i = 0; i < 8; ++i) begun.push_back(push());
  server.service().CloseDataConnections();
  for (const OpId op : begun) REQUIRE_OK(client.Wait(op));
  for (int i = 0; i < 8; ++i) REQUIRE_OK(client.Wait(push()));
  TableArrays values = {std::vector<float>(24)};
  REQUIRE_OK_AND_ASSIGN(const OpId pull, client.Pull(Iteration(0), PullMode::kTrain, &values));
  REQUIRE_OK(client.Wait(pull));
  CHECK(values[0] == std::vector<float>(24, -static_cast<float>(pushes)));
  CHECK(server.Recorded() == 2 * pushes);
  CHECK(client.counts().data_messages < client.counts().messages);
}

TEST_CASE(
    "Data connection pool: when a capability has expired, calls and new connections have the next",
    "[worker][client]") {
  const CapabilityKey key =
      CapabilityKey::FromBytes(std::string(CapabilityKey::kBytes, 'k')).value();
  const absl::Time expiry = absl::Now() + absl::Seconds(5);
  const auto minted = [&](absl::Time until) {
    return MintCapability(key, {.job = "lenet-1",
                                .scope = Capability::Scope::kTask,
                                .rank = Rank(0),
                                .incarnation = Incarnation(1),
                                .expiry = until});
  };
  std::atomic<bool> renewed = false;
  RealServer server(1, key);
  SteadyClock clock;
  PushPullClient client(
      {.job = "lenet-1",
       .rank = Rank(0),
       .incarnation = Incarnation(1),
       .session = {.chunk_bytes_min = 16, .chunk_bytes_max = 32},
       .shared_memory_bytes = 0,
       .capability = [&] { return minted(renewed ? expiry + absl::Hours(1) : expiry); }},
      clock);
  REQUIRE_OK(client.SetRouting(server.Routing()));
  int pushes = 0;
  const auto push_until = [&](const std::function<bool()>& over) {
    const Instant give_up = clock.Now() + kPatience;
    while (!over()) {
      REQUIRE(clock.Now() < give_up);
      REQUIRE_OK_AND_ASSIGN(const OpId op, client.Push(Iteration(pushes++), {}, Ones(24)));
      REQUIRE_OK(client.Wait(op));
    }
  };
  push_until([&] { return client.counts().data_messages > 0; });
  renewed = true;
  push_until([&] { return absl::Now() >= expiry; });
  const int64_t before = client.counts().data_messages;
  push_until([&] { return client.counts().data_messages >= before + 10; });
  CHECK(client.counts().data_messages < client.counts().messages);
  CHECK(server.Recorded() == 2 * pushes);
}

}  // namespace
}  // namespace capstan::worker::data_connection_pool_test
