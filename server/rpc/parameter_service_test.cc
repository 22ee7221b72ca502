// The data plane over a loopback connection.
#include "server/rpc/parameter_service.h"

#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/shared_memory/shared_values.h"
#include "common/testing/status_matchers.h"
#include "server/engine/testing/job_fixture.h"
#include "server/replication/grpc_replica_transport.h"
#include "server/rpc/deadline_timer.h"

namespace capstan::server::parameter_service_test {
namespace {

using absl::StatusCode;

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr ConsistencyRule kBsp{.mode = ConsistencyMode::kBsp, .slots = 2};

class Loopback {
 public:
  Loopback() : timer_(&clock_, [this](Instant now) { return jobs_.Tick(now); }), service_(&jobs_) {
    timer_.Start();
    GrpcServer::Options options;
    options.listen = "127.0.0.1:0";
    options.services = {&service_};
    REQUIRE_OK_AND_ASSIGN(server_, GrpcServer::Start(options));
    stub_ = v1::ParameterServer::NewStub(MakeChannel(server_->address(), ChannelKind::kData));
  }

  ~Loopback() {
    jobs_.DropAll(absl::UnavailableError("the server stops"));
    server_.reset();
    timer_.Stop();
  }

  HeldJobs& jobs() { return jobs_; }
  std::shared_ptr<HeldJob> AddJob() {
    TestJobOptions options{.consistency = kBsp};
    options.clock = &clock_;
    options.schedule_tick = [this](Instant at) { timer_.Schedule(at); };
    auto job = MakeTestJob(options);
    jobs_.Add(job);
    return job;
  }
  v1::ParameterServer::Stub& stub() { return *stub_; }
  const std::string& address() const { return server_->address(); }
  const Clock& clock() const { return clock_; }
  DeadlineTimer& timer() { return timer_; }
  ParameterService& service() { return service_; }

  absl::Status Push(const v1::PushRequest& request, v1::PushResponse* response) {
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    return FromGrpcStatus(stub_->Push(&context, request, response));
  }
  absl::Status Pull(const v1::PullRequest& request, v1::PullResponse* response) {
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    return FromGrpcStatus(stub_->Pull(&context, request, response));
  }

 private:
  SteadyClock clock_;
  HeldJobs jobs_;
  DeadlineTimer timer_;
  ParameterService service_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::ParameterServer::Stub> stub_;
};

// Memory that is shared with the service as long as this lives.
class Share {
 public:
  explicit Share(Loopback& server) : memory_(SharedSegment::Create(1 << 16).value()) {
    const SegmentOffer offer = memory_->offer();
    request_.set_process(offer.process);
    request_.set_file_descriptor(offer.descriptor);
    request_.set_bytes(offer.bytes);
    request_.set_challenge(offer.challenge);
    stream_ = server.stub().ShareMemory(&context_, request_);
    REQUIRE(stream_->Read(&opened_));
    CHECK(opened_.proof() == memory_->proof());
  }
  ~Share() { End(); }
  void End() { context_.TryCancel(); }

  // Moves the values of a push or the rooms of a pull to the memory.
  v1::PushRequest Moved(const v1::PushRequest& request) {
    PushMessage push = Detach(request);
    PutValues(Room(), &push);
    return push.head;
  }
  v1::PullRequest Moved(v1::PullRequest request) {
    NameRoom(Room(), std::vector<int64_t>(static_cast<size_t>(request.shards_size()), 64),
             &request);
    return request;
  }
  const float* at(const v1::SharedRange& range) const {
    return reinterpret_cast<const float*>(memory_->data() + range.offset());
  }

 private:
  MessageRoom Room() const {
    return {.segment = memory_, .name = opened_.segment(), .offset = 0, .bytes = 1 << 16};
  }
  std::shared_ptr<SharedSegment> memory_;
  grpc::ClientContext context_;
  v1::ShareMemoryRequest request_;
  v1::ShareMemoryResponse opened_;
  std::unique_ptr<grpc::ClientReader<v1::ShareMemoryResponse>> stream_;
};

// A call in flight whose end can be waited for.
template <typename Response>
struct Flight {
  grpc::ClientContext context;
  Response response;
  grpc::Status status;
  absl::Notification ended;

  Flight() { SetDeadline(context, kPatience); }
  std::function<void(grpc::Status)> Lander() {
    return [this](grpc::Status end) {
      status = std::move(end);
      ended.Notify();
    };
  }
  absl::Status Wait() {
    REQUIRE(ended.WaitForNotificationWithTimeout(kPatience));
    return FromGrpcStatus(status);
  }
};

TEST_CASE("Parameter service: two workers train one iteration", "[server]") {
  Loopback server;
  server.AddJob();
  Flight<v1::PullResponse> waiting;
  const v1::PullRequest pull = PullOf(0, 1, 20'000);
  server.stub().async()->Pull(&waiting.context, &pull, &waiting.response, waiting.Lander());
  v1::PushResponse pushed;
  REQUIRE_OK(server.Push(PushOf(0, 0, 0, 1.0f), &pushed));
  CHECK(pushed.shards(0).outcome() == v1::ShardPushResult::RECORDED);
  REQUIRE_OK(server.Push(PushOf(1, 0, 1, 2.0f), &pushed));
  REQUIRE_OK(waiting.Wait());
  CHECK(NumberIn(waiting.response) == -3.0f);
}

TEST_CASE("Parameter service: the wait limit passes on the server's clock, and says on whom",
          "[server]") {
  Loopback server;
  server.AddJob();
  v1::PullResponse response;
  REQUIRE_OK(server.Pull(PullOf(0, 1, 20), &response));
  REQUIRE(response.shards_size() == 2);
  CHECK(response.shards(0).outcome() == v1::ShardValues::NOT_READY);
  REQUIRE(response.waiting_on_size() == 2);
  CHECK(response.waiting_on(0).slots_size() == 2);
}

TEST_CASE("Parameter service: a cancelled pull is forgotten", "[server]") {
  Loopback server;
  const std::shared_ptr<HeldJob> job = server.AddJob();
  const v1::PullRequest request = PullOf(0, 1, 60'000);
  Flight<v1::PullResponse> pull;
  server.stub().async()->Pull(&pull.context, &request, &pull.response, pull.Lander());
  const absl::Time give_up = absl::Now() + kPatience;
  while (job->NextDeadline() == Instant::InfiniteFuture()) REQUIRE(absl::Now() < give_up);
  pull.context.TryCancel();
  CHECK(pull.Wait().code() == StatusCode::kCancelled);
  while (job->NextDeadline() != Instant::InfiniteFuture()) REQUIRE(absl::Now() < give_up);
}

TEST_CASE(
    "Parameter service: a deadline that is done away with as the timer ticks hides no later one",
    "[server]") {
  Loopback server;
  const std::shared_ptr<HeldJob> job = server.AddJob();
  PullAnswer first, second, third;
  absl::Notification over, late;
  const auto waits = job->calls().Pull(PullOf(0, 1, 300), &first, [](const absl::Status&) {});
  REQUIRE(waits.has_value());
  // Told by the timer's thread, after its tick has looked for the next deadline.
  job->calls().Pull(PullOf(1, 1, 20), &second, [&](const absl::Status&) {
    job->calls().Cancel(*waits);
    over.Notify();
  });
  over.WaitForNotification();
  job->calls().Pull(PullOf(0, 1, 400), &third, [&](const absl::Status&) { late.Notify(); });
  CHECK(late.WaitForNotificationWithTimeout(kPatience));
}

TEST_CASE("Parameter service: dropping a job ends the pulls that wait for it", "[server]") {
  Loopback server;
  const std::shared_ptr<HeldJob> job = server.AddJob();
  const v1::PullRequest request = PullOf(0, 1, 60'000);
  Flight<v1::PullResponse> pull;
  server.stub().async()->Pull(&pull.context, &request, &pull.response, pull.Lander());
  const absl::Time give_up = absl::Now() + kPatience;
  while (job->NextDeadline() == Instant::InfiniteFuture()) REQUIRE(absl::Now() < give_up);
  server.jobs().Drop("lenet-1");
  CHECK_STATUS(pull.Wait(), StatusCode::kNotFound, "\"lenet-1\" is no longer held here");
}

TEST_CASE("Parameter service: errors carry their code and words", "[server]") {
  Loopback server;
  v1::PushResponse response;
  CHECK_STATUS(server.Push(PushOf(0, 0, 0, 1.0f), &response), StatusCode::kNotFound,
               "job \"lenet-1\" is not held here; this server holds 0 jobs");
  server.AddJob();
  v1::PushRequest push = PushOf(0, 0, 0, 1.0f);
  push.mutable_shards(0)->set_values(std::string(17, 'x'));
  CHECK_STATUS(server.Push(push, &response), StatusCode::kInvalidArgument,
               "expected 64 bytes = 16 elements of FLOAT32, got 17");
  push.mutable_caller()->set_routing_generation(0);
  CHECK_STATUS(server.Push(push, &response), StatusCode::kFailedPrecondition, "expected 1");
}

TEST_CASE("Parameter service: values go through shared memory where the messages say so",
          "[server]") {
  Loopback server;
  server.AddJob();
  Share share(server);
  v1::PushResponse pushed;
  REQUIRE_OK(server.Push(share.Moved(PushOf(0, 0, 0, 1.0f)), &pushed));
  REQUIRE_OK(server.Push(PushOf(1, 0, 1, 2.0f), &pushed));
  v1::PullResponse pulled;
  REQUIRE_OK(server.Pull(share.Moved(PullOf(0, 1, 20'000)), &pulled));
  for (const v1::ShardValues& shard : pulled.shards()) {
    CHECK(shard.values().empty());
    CHECK(shard.shared().bytes() > 0);
    CHECK(*share.at(shard.shared()) == -3.0f);
  }
}

TEST_CASE("Parameter service: shared memory that is not there, or not so long, ends the call alone",
          "[server]") {
  Loopback server;
  server.AddJob();
  Share share(server);
  v1::PushRequest push = share.Moved(PushOf(0, 0, 0, 1.0f));
  v1::PullRequest pull = share.Moved(SnapshotOf());
  v1::PushResponse pushed;
  v1::PullResponse pulled;
  SECTION("another name") {
    push.set_segment(push.segment() + 1);
    pull.set_segment(pull.segment() + 1);
    CHECK_STATUS(server.Push(push, &pushed), StatusCode::kUnavailable, "is not open here");
    CHECK_STATUS(server.Pull(pull, &pulled), StatusCode::kUnavailable, "is not open here");
  }
  SECTION("a range beyond it") {
    push.mutable_shards(1)->mutable_shared()->set_offset(1 << 16);
    pull.mutable_shards(1)->mutable_room()->set_bytes(1 << 20);
    CHECK_STATUS(server.Push(push, &pushed), StatusCode::kInvalidArgument,
                 "expected a range within 65536 bytes");
    CHECK_STATUS(server.Pull(pull, &pulled), StatusCode::kInvalidArgument, "entry 1");
  }
  SECTION("values of another length than the shard's") {
    push.mutable_shards(0)->mutable_shared()->set_bytes(60);
    CHECK_STATUS(server.Push(push, &pushed), StatusCode::kInvalidArgument, "got 60");
  }
  SECTION("closed by its caller") {
    share.End();
    const absl::Time give_up = absl::Now() + kPatience;
    while (server.service().segments() > 0) REQUIRE(absl::Now() < give_up);
    CHECK_STATUS(server.Push(push, &pushed), StatusCode::kUnavailable, "offer it again");
  }
  REQUIRE_OK(server.Push(PushOf(0, 0, 0, 1.0f), &pushed));  // Nothing was recorded before.
  CHECK(pushed.shards(0).outcome() == v1::ShardPushResult::RECORDED);
}

TEST_CASE("Parameter service: memory that is not the caller's is not opened", "[server]") {
  Loopback server;
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::ShareMemoryRequest request;
  request.set_process(getpid());
  request.set_file_descriptor(1);
  request.set_bytes(1 << 16);
  request.set_challenge(std::string(16, 'x'));
  v1::ShareMemoryResponse response;
  const auto stream = server.stub().ShareMemory(&context, request);
  CHECK_FALSE(stream->Read(&response));
  CHECK_STATUS(FromGrpcStatus(stream->Finish()), StatusCode::kNotFound, "another host");
  CHECK(server.service().segments() == 0);
}

TEST_CASE("Parameter service: a server that stops ends the streams of shared memory", "[server]") {
  Loopback server;
  Share share(server);
  CHECK(server.service().segments() == 1);
  server.service().CloseSegments();
  const absl::Time give_up = absl::Now() + kPatience;
  while (server.service().segments() > 0) REQUIRE(absl::Now() < give_up);
}

TEST_CASE("Parameter service: what is held can be described, for one job or all", "[server]") {
  Loopback server;
  server.AddJob();
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::DescribeTablesRequest request;
  request.set_job_id(GENERATE("", "lenet-1"));
  v1::DescribeTablesResponse response;
  REQUIRE_OK(FromGrpcStatus(server.stub().DescribeTables(&context, request, &response)));
  REQUIRE(response.tables_size() == 1);
  CHECK(response.tables(0).job_id() == "lenet-1");
  CHECK(response.tables(0).elements() == 24);
}

TEST_CASE("Parameter service: what goes through it is counted, by method", "[server]") {
  Loopback server;
  server.AddJob();
  Share share(server);
  v1::PushResponse pushed;
  REQUIRE_OK(server.Push(share.Moved(PushOf(0, 0, 0, 1.0f)), &pushed));
  REQUIRE_OK(server.Push(PushOf(1, 0, 1, 2.0f), &pushed));
  v1::PushRequest wrong = PushOf(1, 0, 1, 2.0f);
  wrong.mutable_caller()->set_job_id("other-1");
  CHECK_FALSE(server.Push(wrong, &pushed).ok());
  v1::PullResponse pulled;
  REQUIRE_OK(server.Pull(PullOf(0, 1, 20'000), &pulled));

  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::DescribeTrafficResponse traffic;
  REQUIRE_OK(FromGrpcStatus(server.stub().DescribeTraffic(&context, {}, &traffic)));
  CHECK(traffic.shared_segments() == 1);
  REQUIRE(traffic.methods_size() == 4);
  const v1::MethodTraffic& push = traffic.methods(0);
  CHECK(push.name() == "Push");
  CHECK(push.calls() == 3);
  CHECK(push.refused() == 1);
  CHECK(push.open() == 0);
  CHECK(push.open_max() == 1);
  CHECK(push.bytes() == 3 * 96);  // 24 elements of fp32 each, of the refused one, too.
  CHECK(push.shared_bytes() == 96);
  CHECK(traffic.methods(1).calls() == 1);
  CHECK(traffic.methods(1).bytes() == 96);
  CHECK(traffic.methods(2).calls() == 0);
  int64_t answers = 0;
  for (const int64_t count : push.answer().counts()) answers += count;
  CHECK(answers == 3);
}

TEST_CASE("Parameter service: the rows of a sparse table are read in pieces, and counted",
          "[server]") {
  Loopback server;
  server.jobs().Add(
      MakeTestJob(TestJobOptions{.consistency = {.mode = ConsistencyMode::kAsp}, .buckets = 1}));
  v1::PushResponse pushed;
  REQUIRE_OK(server.Push(RowPushOf(0, 1, {1, 2, 3, 4, 5}, 1.0f), &pushed));
  std::string keys;
  uint64_t place = 0;
  for (int piece = 0; piece < 3; ++piece) {
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    v1::ScanRowsResponse response;
    const v1::ScanRowsRequest request = ScanOf(0, place, /*bytes_max=*/2 * 16 + 15);
    REQUIRE_OK(FromGrpcStatus(server.stub().ScanRows(&context, request, &response)));
    CHECK(response.end() == (piece == 2));
    CHECK(response.rows().size() == (piece == 2 ? 16 : 32));
    keys += response.rows().substr(0, response.rows().size() / 2);
    place = response.next_place();
  }
  CHECK(keys.size() == 5 * sizeof(uint64_t));
  v1::ScanRowsRequest other = ScanOf(0);
  other.mutable_caller()->set_job_id("other-1");
  grpc::ClientContext unknown, describing;
  SetDeadline(unknown, kPatience);
  SetDeadline(describing, kPatience);
  v1::ScanRowsResponse refused;
  CHECK_STATUS(FromGrpcStatus(server.stub().ScanRows(&unknown, other, &refused)),
               StatusCode::kNotFound, "other-1");
  v1::DescribeTrafficResponse traffic;
  REQUIRE_OK(FromGrpcStatus(server.stub().DescribeTraffic(&describing, {}, &traffic)));
  CHECK(traffic.methods(2).name() == "ScanRows");
  CHECK(traffic.methods(2).calls() == 4);
  CHECK(traffic.methods(2).refused() == 1);
  CHECK(traffic.methods(2).bytes() == 5 * 16);
}

TEST_CASE("Parameter service: the routing table can be asked for", "[server]") {
  Loopback server;
  server.AddJob();
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::GetRoutingRequest request;
  request.set_job_id("lenet-1");
  v1::GetRoutingResponse response;
  REQUIRE_OK(FromGrpcStatus(server.stub().GetRouting(&context, request, &response)));
  CHECK(response.routing().generation() == 1);
  CHECK(response.routing().shards_size() == 2);
}

TEST_CASE("Parameter service: a primary fills its replica and replicates to it over the network",
          "[server]") {
  Loopback first, second;
  GrpcReplicaTransport transport;
  const auto make = [&](Loopback& server, const NodeId& node) {
    TestJobOptions options{.consistency = kBsp, .node = node, .safe_replies = true};
    options.clock = &server.clock();
    options.transport = &transport;
    options.schedule_tick = [&server](Instant at) { server.timer().Schedule(at); };
    auto job = MakeEmptyTestJob(options);
    server.jobs().Add(job);
    return job;
  };
  const auto primary = make(first, "server-1"), replica = make(second, "server-2");
  v1::RoutingTable routing = TestRouting(1);
  AddReplica(&routing, "server-2", /*in_sync=*/true);
  routing.mutable_servers(1)->set_address(second.address());
  TakeRouting(*primary, routing);
  TakeRouting(*replica, routing);  // Later: the primary is told to try again.

  const v1::PushRequest one = PushOf(0, 0, 0, 1.0f), two = PushOf(1, 0, 1, 2.0f);
  Flight<v1::PushResponse> held, completing;
  first.stub().async()->Push(&held.context, &one, &held.response, held.Lander());
  first.stub().async()->Push(&completing.context, &two, &completing.response, completing.Lander());
  REQUIRE_OK(held.Wait());
  REQUIRE_OK(completing.Wait());

  routing = TestRouting(2, "server-2", 2);  // The replica has all that was acknowledged.
  TakeRouting(*replica, routing);
  v1::PullRequest pull = PullOf(0, 1, 0);
  pull.mutable_caller()->set_routing_generation(2);
  v1::PullResponse response;
  REQUIRE_OK(second.Pull(pull, &response));
  CHECK(NumberIn(response) == -3.0f);
  transport.Stop();
}

}  // namespace
}  // namespace capstan::server::parameter_service_test
