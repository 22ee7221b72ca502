// Servers of one job with a network in memory: what is acknowledged survives the loss of a primary.
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "server/engine/job/held_job.h"
#include "server/engine/testing/job_fixture.h"
#include "server/engine/testing/memory_log.h"

namespace capstan::server::replication_test {
namespace {

using absl::StatusCode;

constexpr ConsistencyRule kBsp{.mode = ConsistencyMode::kBsp, .slots = 2};
constexpr ConsistencyRule kAsp{.mode = ConsistencyMode::kAsp};
constexpr ShardKey kKeys[] = {{TableId(0), ShardId(0)}, {TableId(0), ShardId(1)}};

// The servers by name, and the messages between them, which travel when the test says so.
class Cluster final : public ReplicaTransport {
 public:
  explicit Cluster(ConsistencyRule consistency, bool safe_replies = true)
      : consistency_(consistency), safe_replies_(safe_replies) {}

  HeldJob& operator[](const NodeId& node) {
    std::shared_ptr<HeldJob>& job = jobs_[node];
    if (job == nullptr) {
      TestJobOptions options{.consistency = consistency_,
                             .optimizer = OptimizerKind::kAdam,
                             .node = node,
                             .safe_replies = safe_replies_};
      options.clock = &clock;
      options.transport = this;
      options.log = logs.contains(node) ? &logs.at(node) : nullptr;
      job = MakeEmptyTestJob(options);
      job->assignment().SetReadLease(Instant() + absl::Hours(1));
    }
    return *job;
  }

  void Route(const v1::RoutingTable& routing, std::vector<NodeId> nodes) {
    for (const NodeId& node : nodes) TakeRouting((*this)[node], routing);
  }

  void Send(const v1::ServerAddress& to, ReplicaRequest request, Moved, Done done) override {
    mail.push_back({.to = to.node_id(), .request = std::move(request), .done = std::move(done)});
  }

  // Delivers what lies there and what follows from it, until nothing moves.
  void Deliver() {
    while (!mail.empty()) DeliverOne();
  }
  void DeliverOne() {
    Letter letter = std::move(mail.front());
    mail.pop_front();
    if (cut.contains(letter.to)) {
      return letter.done(absl::UnavailableError("no answer"), {});
    }
    v1::ReplicateRequest request = *letter.request.message;
    while (letter.request.rows != nullptr) {
      auto piece = letter.request.rows->Next();
      if (!piece.ok()) return letter.done(piece.status(), {});
      if (!piece->has_value()) break;
      *request.mutable_install()->add_pieces() = **std::move(piece);
    }
    auto response = std::make_shared<v1::ReplicateResponse>();
    (*this)[letter.to].replica_calls().Replicate(
        request, response.get(),
        [response, done = letter.done](const absl::Status& status) { done(status, *response); });
  }
  void Pass(absl::Duration time) {
    clock.Advance(time);
    for (const auto& [node, job] : jobs_) {
      if (!cut.contains(node)) job->Tick(clock.Now());
    }
  }

  struct Letter {
    NodeId to;
    ReplicaRequest request;
    Done done;
  };
  ManualClock clock;
  std::deque<Letter> mail;
  std::set<NodeId> cut;  // Nobody reaches them.
  std::map<NodeId, MemoryLog> logs;

 private:
  const ConsistencyRule consistency_;
  const bool safe_replies_;
  std::map<NodeId, std::shared_ptr<HeldJob>> jobs_;
};

// A call as its caller sees it.
template <typename Response>
struct Flight {
  Response response;
  std::optional<absl::Status> ended;
  HeldJob::Done Lander() {
    return [this](const absl::Status& status) {
      REQUIRE_FALSE(ended.has_value());
      ended = status;
    };
  }
  bool waits() const { return !ended.has_value(); }
};
using PushFlight = Flight<v1::PushResponse>;
using PullFlight = Flight<PullAnswer>;

std::unique_ptr<PushFlight> Push(HeldJob& job, v1::PushRequest request) {
  request.mutable_caller()->set_routing_generation(job.assignment().routing_generation().value());
  auto flight = std::make_unique<PushFlight>();
  job.calls().Push(Detach(request), &flight->response, flight->Lander());
  return flight;
}

std::unique_ptr<PullFlight> Pull(HeldJob& job, v1::PullRequest request) {
  request.mutable_caller()->set_routing_generation(job.assignment().routing_generation().value());
  auto flight = std::make_unique<PullFlight>();
  job.calls().Pull(request, &flight->response, flight->Lander());
  return flight;
}

// How a call has ended that did not wait.
template <typename Response>
absl::Status EndOf(const std::unique_ptr<Flight<Response>>& flight) {
  REQUIRE(flight->ended.has_value());
  return *flight->ended;
}

// Only `node` is left: the primary of a new term.
v1::RoutingTable Takeover(uint64_t generation, const NodeId& node) {
  return TestRouting(generation, node, generation);
}

// server-1 is primary, server-2 its replica in sync, both filled.
void StartPair(Cluster& cluster) {
  v1::RoutingTable routing = TestRouting(1);
  AddReplica(&routing, "server-2", /*in_sync=*/true);
  cluster.Route(routing, {"server-1", "server-2"});
  cluster.Deliver();
}

TEST_CASE("Replication: a push is acknowledged once the replica has it", "[server]") {
  SECTION("BSP: with its whole iteration") {
    Cluster cluster(kBsp);
    StartPair(cluster);
    const auto first = Push(cluster["server-1"], PushOf(0, 0, 0, 1.0f));
    CHECK(cluster.mail.empty());  // The slots' pushes are not replicated.
    CHECK(first->waits());
    const auto second = Push(cluster["server-1"], PushOf(1, 0, 1, 1.0f));
    const auto again = Push(cluster["server-1"], PushOf(0, 0, 0, 1.0f));
    CHECK(first->waits());
    CHECK(cluster.mail.size() == 2);  // The update of each shard.
    cluster.DeliverOne();
    CHECK(first->waits());
    cluster.Deliver();
    REQUIRE_OK(*first->ended);
    REQUIRE_OK(*second->ended);
    REQUIRE_OK(*again->ended);
    CHECK(again->response.shards(0).outcome() == v1::ShardPushResult::DUPLICATE);
  }
  SECTION("ASP: by itself") {
    Cluster cluster(kAsp);
    StartPair(cluster);
    const auto push = Push(cluster["server-1"], PushOf(0, 0, -1, 1.0f));
    const auto again = Push(cluster["server-1"], PushOf(0, 0, -1, 1.0f));
    CHECK(push->waits());
    CHECK(again->waits());  // A repetition is no safer than the push.
    cluster.Deliver();
    REQUIRE_OK(*push->ended);
    REQUIRE_OK(*again->ended);
  }
}

TEST_CASE("Replication: nothing is read that could still be lost", "[server]") {
  Cluster cluster(kAsp);
  StartPair(cluster);
  const auto before = Pull(cluster["server-1"], PullOf(0, 0, 0));
  REQUIRE_OK(*before->ended);
  const auto push = Push(cluster["server-1"], PushOf(0, 0, -1, 1.0f));
  const auto dirty = Pull(cluster["server-1"], PullOf(1, 0, 0));
  const auto snapshot = Pull(cluster["server-1"], SnapshotOf());
  CHECK(dirty->waits());
  CHECK(snapshot->waits());
  cluster.Deliver();
  REQUIRE_OK(*dirty->ended);
  REQUIRE_OK(*snapshot->ended);
  CHECK(dirty->response.head.shards(0).version() == 1);
}

TEST_CASE("Replication: an answer to a shard that was given up is not its successor's",
          "[server]") {
  Cluster cluster(kAsp);
  v1::RoutingTable routing = TestRouting(1);
  AddReplica(&routing, "server-2", /*in_sync=*/false);
  TakeRouting(cluster["server-1"], routing);
  REQUIRE(cluster.mail.size() == 2);  // A question for each shard.
  std::deque<Cluster::Letter> before = std::exchange(cluster.mail, {});
  // The job goes back to a checkpoint.
  HeldJob& job = cluster["server-1"];
  v1::RoutingTable later = TestRouting(2, "server-1", 2);
  AddReplica(&later, "server-2", /*in_sync=*/false);
  job.assignment().ForgetForRestore(later, Term(2));
  TakeRouting(job, later, {.restore_term = Term(2), .log_term = {}});
  REQUIRE(cluster.mail.size() == 2);
  for (const Cluster::Letter& letter : before) {
    letter.done(absl::FailedPreconditionError("term 1 has ended"), {});
  }
  const auto pull = Pull(job, PullOf(0, 0, 0));
  REQUIRE_OK(EndOf(pull));
}

// Trains two iterations, loses the primary with a third one in doubt, and repeats its pushes.
v1::ShardSnapshot TrainThroughFailover(ConsistencyRule mode, bool lose) {
  Cluster cluster(mode);
  StartPair(cluster);
  const bool bsp = mode.mode == ConsistencyMode::kBsp;
  const auto pushes = [&](int64_t iteration) {
    std::vector<v1::PushRequest> requests;
    for (int32_t rank = 0; rank < 2; ++rank) {
      requests.push_back(PushOf(rank, iteration, bsp ? rank : -1,
                                0.5f + static_cast<float>(rank + iteration),
                                static_cast<uint64_t>(iteration + 1)));
    }
    return requests;
  };
  NodeId primary = "server-1";
  for (int64_t iteration = 0; iteration < 4; ++iteration) {
    std::vector<std::unique_ptr<PushFlight>> flights;
    for (const v1::PushRequest& push : pushes(iteration)) {
      flights.push_back(Push(cluster[primary], push));
      if (!bsp && !(lose && iteration == 2)) cluster.Deliver();
    }
    if (lose && iteration == 2) {
      cluster.DeliverOne();  // One shard's record arrives, and nothing else of this iteration.
      cluster.mail.clear();
      primary = "server-2";
      cluster.Route(Takeover(2, primary), {primary});
      for (const v1::PushRequest& push : pushes(iteration)) {
        flights.push_back(Push(cluster[primary], push));
      }
      REQUIRE(flights[2]->response.shards(0).outcome() == v1::ShardPushResult::DUPLICATE);
      REQUIRE(flights[2]->response.shards(1).outcome() == v1::ShardPushResult::RECORDED);
    }
    cluster.Deliver();
    REQUIRE_OK(*flights.back()->ended);
  }
  const std::vector<CapturedShard> captured = cluster[primary].captures().Capture({}).value();
  REQUIRE(captured.size() == 2);
  CHECK(captured[0].snapshot->state().version() == captured[1].snapshot->state().version());
  return *captured[1].snapshot;
}

TEST_CASE("Replication: after a failover the same pushes are applied once, to the same bits",
          "[server]") {
  for (const ConsistencyRule& mode : {kBsp, kAsp}) {
    const v1::ShardSnapshot lost = TrainThroughFailover(mode, true);
    const v1::ShardSnapshot calm = TrainThroughFailover(mode, false);
    CHECK(lost.values() == calm.values());
    REQUIRE(lost.optimizer_state_size() == 2);
    CHECK(lost.optimizer_state(0) == calm.optimizer_state(0));
    CHECK(lost.optimizer_state(1) == calm.optimizer_state(1));
    CHECK(lost.previous() == calm.previous());
    CHECK(lost.state().version() == calm.state().version());
  }
}

TEST_CASE("Replication: a replica is filled while pushes go on, then counts and is reported",
          "[server]") {
  Cluster cluster(kAsp);
  TakeRouting(cluster["server-1"], TestRouting(1));
  REQUIRE_OK(EndOf(Push(cluster["server-1"], PushOf(0, 0, -1, 1.0f, 1))));  // No replica yet.
  v1::RoutingTable routing = TestRouting(2);
  AddReplica(&routing, "server-2", /*in_sync=*/false);
  cluster.Route(routing, {"server-2", "server-1"});
  cluster.DeliverOne();
  cluster.DeliverOne();  // Both shards' replicas were asked; the shards are on their way.
  REQUIRE_OK(EndOf(Push(cluster["server-1"], PushOf(0, 1, -1, 1.0f, 2))));
  CHECK(cluster["server-1"].ReplicaStates().empty());
  cluster.DeliverOne();
  cluster.DeliverOne();
  const auto held = Push(cluster["server-1"], PushOf(0, 2, -1, 1.0f, 3));
  CHECK(held->waits());
  cluster.Deliver();
  REQUIRE_OK(*held->ended);
  const std::vector<v1::ReplicaState> states = cluster["server-1"].ReplicaStates();
  REQUIRE(states.size() == 2);
  CHECK(states[0].state() == v1::ReplicaState::FILLED);
  CHECK(states[0].node_id() == "server-2");
  CHECK(states[0].term() == 1);
  cluster.Route(Takeover(3, "server-2"), {"server-2"});
  REQUIRE_OK_AND_ASSIGN(const auto first, cluster["server-1"].captures().Capture({}));
  REQUIRE_OK_AND_ASSIGN(const auto second, cluster["server-2"].captures().Capture({}));
  for (const CapturedShard& each : second) {
    const v1::ShardSnapshot& other =
        *first[static_cast<size_t>(each.shard.key.shard.value())].snapshot;
    CHECK(each.snapshot->state().version() == 3);
    CHECK(each.snapshot->values() == other.values());
    CHECK(each.snapshot->optimizer_state(1) == other.optimizer_state(1));
  }
}

TEST_CASE("Replication: a primary that was replaced acknowledges and shows nothing more",
          "[server]") {
  Cluster cluster(kAsp);
  StartPair(cluster);
  cluster.Route(Takeover(2, "server-2"), {"server-2"});  // server-1 does not hear of it.
  const auto push = Push(cluster["server-1"], PushOf(0, 0, -1, 1.0f));
  const auto pull = Pull(cluster["server-1"], PullOf(1, 0, 0));
  CHECK(push->waits());
  CHECK(pull->waits());
  cluster.Deliver();
  CHECK_STATUS(*push->ended, StatusCode::kFailedPrecondition, "has another primary now");
  CHECK_STATUS(*pull->ended, StatusCode::kFailedPrecondition, "has another primary now");
  const auto late = Push(cluster["server-1"], PushOf(0, 0, -1, 1.0f));
  CHECK_STATUS(*late->ended, StatusCode::kFailedPrecondition, "fetch the routing table");
  CHECK(cluster["server-2"].Describe()[0].pushes_applied() == 0);
}

TEST_CASE("Replication: calls that wait end when the routing gives their shard to another",
          "[server]") {
  Cluster cluster(kBsp);
  StartPair(cluster);
  const auto push = Push(cluster["server-1"], PushOf(0, 0, 0, 1.0f));
  const auto pull = Pull(cluster["server-1"], PullOf(0, 1, 1000));
  v1::RoutingTable routing = Takeover(2, "server-2");
  SECTION("and it is not to hold it any more") {}
  SECTION("and it is to be a replica") { AddReplica(&routing, "server-1", /*in_sync=*/false); }
  TakeRouting(cluster["server-1"], routing);
  CHECK(push->ended->code() == StatusCode::kFailedPrecondition);
  CHECK(pull->ended->code() == StatusCode::kFailedPrecondition);
  CHECK(cluster["server-1"].shards().empty());
}

TEST_CASE("Replication: a reader of a primary without a lease waits for the replicas", "[server]") {
  Cluster cluster(kAsp);
  StartPair(cluster);
  cluster.clock.Advance(absl::Hours(1));  // The lease is over: the scheduler may be gone.
  const auto first = Pull(cluster["server-1"], PullOf(0, 0, 0));
  const auto second = Pull(cluster["server-1"], SnapshotOf());
  CHECK(first->waits());
  CHECK(second->waits());
  SECTION("which confirm it") {
    cluster.Deliver();
    REQUIRE_OK(*first->ended);
    REQUIRE_OK(*second->ended);
    CHECK(first->response.head.shards(0).version() == 0);
  }
  SECTION("which know a newer primary") {
    cluster.Route(Takeover(2, "server-2"), {"server-2"});
    cluster.Deliver();
    CHECK(first->ended->code() == StatusCode::kFailedPrecondition);
    CHECK(second->ended->code() == StatusCode::kFailedPrecondition);
  }
  SECTION("and with a new lease it is as before") {
    cluster["server-1"].assignment().SetReadLease(cluster.clock.Now() + absl::Seconds(1));
    REQUIRE_OK(EndOf(Pull(cluster["server-1"], PullOf(1, 0, 0))));
  }
}

TEST_CASE("Replication: a reader of a primary without a lease waits until its replicas are filled",
          "[server]") {
  Cluster cluster(kAsp);
  v1::RoutingTable routing = TestRouting(1);
  AddReplica(&routing, "server-2", /*in_sync=*/true);
  cluster.Route(routing, {"server-1", "server-2"});
  cluster.clock.Advance(absl::Hours(1));
  const auto first = Pull(cluster["server-1"], PullOf(0, 0, 0));
  const auto second = Pull(cluster["server-1"], SnapshotOf());
  CHECK(first->waits());
  CHECK(second->waits());
  cluster.Deliver();
  REQUIRE_OK(EndOf(first));
  REQUIRE_OK(EndOf(second));
}

TEST_CASE("Replication: a primary that hands over asks its replicas before each read", "[server]") {
  Cluster cluster(kAsp);
  StartPair(cluster);
  v1::RoutingTable routing = TestRouting(2);
  AddReplica(&routing, "server-2", /*in_sync=*/true);
  for (v1::ShardRoute& route : *routing.mutable_shards()) route.set_hands_over(true);
  cluster.Route(routing, {"server-1", "server-2"});
  const auto read = Pull(cluster["server-1"], PullOf(0, 0, 0));  // Its read lease goes on.
  CHECK(read->waits());
  SECTION("which confirm it") {
    cluster.Deliver();
    REQUIRE_OK(*read->ended);
  }
  SECTION("of which one has taken over, with pushes that this server does not know") {
    cluster.Route(Takeover(3, "server-2"), {"server-2"});
    REQUIRE_OK(EndOf(Push(cluster["server-2"], PushOf(0, 0, -1, 1.0f))));
    cluster.Deliver();
    CHECK(read->ended->code() == StatusCode::kFailedPrecondition);
  }
  SECTION("and stays after all") {
    cluster.Deliver();
    routing = TestRouting(3);
    AddReplica(&routing, "server-2", /*in_sync=*/true);
    cluster.Route(routing, {"server-1", "server-2"});
    REQUIRE_OK(EndOf(Pull(cluster["server-1"], PullOf(1, 0, 0))));
  }
}

TEST_CASE("Replication: a replica in sync that does not answer is reported, not dropped",
          "[server]") {
  Cluster cluster(kAsp);
  StartPair(cluster);
  cluster.cut.insert("server-2");
  const auto push = Push(cluster["server-1"], PushOf(0, 0, -1, 1.0f));
  for (int i = 0; i < 50; ++i) {
    cluster.Pass(absl::Milliseconds(25));
    cluster.Deliver();
  }
  const std::vector<v1::ReplicaState> states = cluster["server-1"].ReplicaStates();
  REQUIRE(states.size() == 2);
  CHECK(states[0].state() == v1::ReplicaState::UNREACHABLE);
  CHECK(push->waits());
  SECTION("the scheduler takes it away") {
    TakeRouting(cluster["server-1"], TestRouting(2));
    REQUIRE_OK(*push->ended);
  }
  SECTION("it comes back") {
    cluster.cut.clear();
    cluster.Pass(absl::Milliseconds(500));
    cluster.Deliver();
    REQUIRE_OK(*push->ended);
    CHECK(cluster["server-1"].ReplicaStates().empty());
  }
}

TEST_CASE("Replication: with a log a push waits for the disks of both", "[server]") {
  Cluster cluster(kAsp);
  MemoryLog& first = cluster.logs["server-1"];
  MemoryLog& second = cluster.logs["server-2"];
  StartPair(cluster);
  second.Sync(cluster["server-2"]);
  first.Sync(cluster["server-1"]);
  cluster.Deliver();
  const auto push = Push(cluster["server-1"], PushOf(0, 0, -1, 1.0f));
  cluster.Deliver();
  CHECK(push->waits());
  SECTION("the replica's last") {
    first.Sync(cluster["server-1"]);
    CHECK(push->waits());
    second.Sync(cluster["server-2"]);
  }
  SECTION("the primary's last") {
    second.Sync(cluster["server-2"]);
    CHECK(push->waits());
    first.Sync(cluster["server-1"]);
  }
  REQUIRE_OK(*push->ended);
  CHECK(first.ends == second.ends);
  CHECK(second.begins == 2);

  // The new primary goes on with the log that it has as a replica: only the term is new.
  const auto ends = second.ends;
  cluster.Route(Takeover(2, "server-2"), {"server-2"});
  CHECK(second.begins == 2);
  CHECK(second.continues == 2);
  for (const auto& [shard, end] : ends) {
    CHECK(second.ends.at(shard) == std::pair(Term(2), end.second));
  }
}

TEST_CASE("Replication: shards move from a server that is drained without losing a slot",
          "[server]") {
  // The job asks for no replicas.
  Cluster cluster({.mode = ConsistencyMode::kBsp, .slots = 3}, /*safe_replies=*/false);
  TakeRouting(cluster["server-1"], TestRouting(1));
  REQUIRE_OK(EndOf(Push(cluster["server-1"], PushOf(0, 0, 0, 1.0f))));  // No record has it yet.
  v1::RoutingTable routing = TestRouting(2);
  AddReplica(&routing, "server-2", /*in_sync=*/false);
  cluster.Route(routing, {"server-2", "server-1"});
  cluster.Deliver();
  // One task has both slots: it sends the second once the first is answered.
  REQUIRE_OK(EndOf(Push(cluster["server-1"], PushOf(1, 0, 1, 1.0f))));
  CHECK(cluster["server-1"].ReplicaStates().empty());
  REQUIRE_OK(EndOf(Push(cluster["server-1"], PushOf(1, 0, 2, 1.0f))));
  cluster.Deliver();
  CHECK(cluster["server-1"].ReplicaStates().size() == 2);
  // From now on the other one may be made primary at any time.
  CHECK(Push(cluster["server-1"], PushOf(0, 1, 0, 1.0f))->waits());
}

TEST_CASE("Replication: a message that does not fit is refused and changes nothing", "[server]") {
  Cluster cluster(kAsp);
  StartPair(cluster);
  v1::ReplicateRequest request;
  request.set_job_id("lenet-1");
  request.set_sender("server-1");
  request.set_term(1);
  request.set_routing_generation(1);
  const auto replicate = [&] {
    std::optional<absl::Status> ended;
    v1::ReplicateResponse response;
    cluster["server-2"].replica_calls().Replicate(
        request, &response, [&](const absl::Status& status) { ended = status; });
    REQUIRE(ended.has_value());
    return *ended;
  };
  SECTION("a shard that it does not hold") {
    request.set_shard(9);
    CHECK_STATUS(replicate(), StatusCode::kNotFound, "gives this server no copy");
  }
  SECTION("an old term") {
    request.set_term(0);
    CHECK_STATUS(replicate(), StatusCode::kFailedPrecondition, "term 0");
  }
  SECTION("another server than the primary of that term") {
    for (const char* sender : {"server-2", "server-3", ""}) {
      request.set_sender(sender);
      CHECK_STATUS(
          replicate(), StatusCode::kPermissionDenied,
          absl::StrCat("sent by \"", sender, "\": expected \"server-1\", the primary of term 1"));
    }
  }
  SECTION("a newer routing table") {
    request.set_routing_generation(2);
    CHECK_STATUS(replicate(), StatusCode::kNotFound, "this server has generation 1");
  }
  SECTION("too few values") {
    v1::ShardRecord* record = request.add_records();
    record->set_position(1);
    record->mutable_push()->set_incarnation(1);
    record->mutable_push()->set_sequence(1);
    record->set_values("abcd");
    CHECK_STATUS(replicate(), StatusCode::kInvalidArgument,
                 "expected 64 bytes = 16 elements of FLOAT32, got 4");
  }
  SECTION("a snapshot of another shape") {
    request.mutable_install()->set_position(5);
    CHECK_STATUS(replicate(), StatusCode::kDataLoss, "a snapshot of 0 elements: expected 16");
  }
  const auto push = Push(cluster["server-1"], PushOf(0, 0, -1, 1.0f));
  cluster.Deliver();
  REQUIRE_OK(*push->ended);
}

}  // namespace
}  // namespace capstan::server::replication_test
