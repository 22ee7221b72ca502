// Messages to replicas that travel together: what is in them, and what is answered when.
#include <catch2/catch.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "common/wire/message_checksum.h"
#include "server/engine/job/held_job.h"
#include "server/engine/testing/job_fixture.h"
#include "server/engine/testing/memory_log.h"
#include "server/replication/replica_checks.h"

namespace capstan::server::replicate_batch_test {
namespace {

using absl::StatusCode;

constexpr int32_t kBuckets = 4;

// Servers of one job; batches travel when the test says so.
class Cluster final : public ReplicaTransport {
 public:
  struct Letter {
    NodeId to;
    std::vector<ReplicaRequest> requests;
    SomeDone done;
  };

  HeldJob& operator[](const NodeId& node) {
    std::shared_ptr<HeldJob>& job = jobs_[node];
    if (job == nullptr) {
      TestJobOptions options{.consistency = {.mode = ConsistencyMode::kAsp}, .buckets = kBuckets};
      options.node = node;
      options.safe_replies = true;
      options.clock = &clock_;
      options.transport = this;
      options.log = logs.contains(node) ? &logs.at(node) : nullptr;
      job = MakeEmptyTestJob(options);
      job->assignment().SetReadLease(Instant() + absl::Hours(1));
    }
    return *job;
  }
  // server-1 is primary of all shards, the others hold replicas.
  void Start(const std::vector<NodeId>& replicas) {
    v1::RoutingTable routing = TestRouting(1);
    AddBuckets(&routing, kBuckets);
    for (const NodeId& node : replicas) AddReplica(&routing, node, /*in_sync=*/true);
    TakeRouting((*this)["server-1"], routing);
    for (const NodeId& node : replicas) TakeRouting((*this)[node], routing);
    while (!mail.empty()) DeliverOne();
  }

  void Send(const v1::ServerAddress& to, ReplicaRequest request, Moved, Done done) override {
    v1::ReplicateRequest message = *request.message;
    while (request.rows != nullptr) {
      REQUIRE_OK_AND_ASSIGN(std::optional<v1::ShardSnapshot> piece, request.rows->Next());
      if (!piece.has_value()) break;
      *message.mutable_install()->add_pieces() = *std::move(piece);
    }
    installs_.push_back([this, to = to.node_id(), message, done] {
      auto response = std::make_shared<v1::ReplicateResponse>();
      (*this)[to].replica_calls().Replicate(
          message, response.get(),
          [response, done](const absl::Status& status) { done(status, *response); });
    });
  }
  void SendTogether(const v1::ServerAddress& to, std::vector<ReplicaRequest> requests,
                    SomeDone done) override {
    mail.push_back({to.node_id(), std::move(requests), std::move(done)});
  }

  // The next batch, and whole shards that follow from its answer.
  void DeliverOne() {
    const Letter letter = std::move(mail.front());
    mail.pop_front();
    auto batch = std::make_shared<v1::ReplicateBatch>();
    for (const ReplicaRequest& each : letter.requests) *batch->add_messages() = *each.message;
    auto answer = std::make_shared<v1::ReplicateBatchAnswer>();
    (*this)[letter.to].replica_calls().ReplicateBatch(
        *batch, answer.get(), [answer, letter](const absl::Status& status) {
          letter.done(OutcomesOf(letter.requests.size(), status, *answer));
        });
    while (!installs_.empty()) {
      const auto install = std::move(installs_.front());
      installs_.pop_front();
      install();
    }
  }

  std::deque<Letter> mail;
  std::map<NodeId, MemoryLog> logs;

 private:
  ManualClock clock_;
  std::deque<std::function<void()>> installs_;
  std::map<NodeId, std::shared_ptr<HeldJob>> jobs_;
};

// Two keys of each bucket.
const std::vector<uint64_t> kKeys = [] {
  std::vector<uint64_t> keys;
  for (uint64_t key = 1; key <= 40; ++key) keys.push_back(key);
  return keys;
}();

struct PushFlight {
  v1::PushResponse response;
  std::optional<absl::Status> ended;
};

std::unique_ptr<PushFlight> Push(Cluster& cluster, uint64_t sequence, int32_t rank = 0) {
  auto flight = std::make_unique<PushFlight>();
  const v1::PushRequest push = RowPushOf(rank, kBuckets, kKeys, 1.0f, sequence);
  cluster["server-1"].calls().Push(
      Detach(push), &flight->response,
      [&of = *flight](const absl::Status& status) { of.ended = status; });
  return flight;
}

TEST_CASE("Replicate batch: a push's records travel together, and so do those that waited",
          "[server][replication]") {
  Cluster cluster;
  cluster.Start({"server-2"});
  const auto first = Push(cluster, 1);
  REQUIRE(cluster.mail.size() == 1);
  CHECK(cluster.mail[0].requests.size() == kBuckets);
  const auto second = Push(cluster, 2);
  const auto other = Push(cluster, 1, /*rank=*/1);
  CHECK(cluster.mail.size() == 1);  // One message to a follower at a time.
  cluster.DeliverOne();
  REQUIRE_OK(*first->ended);
  CHECK_FALSE(second->ended.has_value());
  REQUIRE(cluster.mail.size() == 1);
  REQUIRE(cluster.mail[0].requests.size() == kBuckets);
  for (const ReplicaRequest& each : cluster.mail[0].requests) {
    CHECK(each.message->records_size() == 2);
  }
  cluster.DeliverOne();
  REQUIRE_OK(*second->ended);
  REQUIRE_OK(*other->ended);
  CHECK(cluster.mail.empty());
}

TEST_CASE("Replicate batch: each server gets its own", "[server][replication]") {
  Cluster cluster;
  cluster.Start({"server-2", "server-3"});
  const auto push = Push(cluster, 1);
  REQUIRE(cluster.mail.size() == 2);
  CHECK(cluster.mail[0].to != cluster.mail[1].to);
  cluster.DeliverOne();
  CHECK_FALSE(push->ended.has_value());
  cluster.DeliverOne();
  REQUIRE_OK(*push->ended);
}

TEST_CASE("Replicate batch: it is answered once the log has all of it", "[server][replication]") {
  Cluster cluster;
  cluster.logs["server-2"];
  cluster.Start({"server-2"});
  MemoryLog& log = cluster.logs["server-2"];
  log.Sync(cluster["server-2"]);
  while (!cluster.mail.empty()) {
    cluster.DeliverOne();
    log.Sync(cluster["server-2"]);
  }
  const auto push = Push(cluster, 1);
  cluster.DeliverOne();
  CHECK_FALSE(push->ended.has_value());
  for (const auto& [shard, end] : log.ends) {
    CHECK_FALSE(push->ended.has_value());
    cluster["server-2"].commits().OnLogged(shard, end.first, end.second);
  }
  REQUIRE_OK(*push->ended);
}

TEST_CASE("Replicate batch: a message that does not fit changes nothing for the others",
          "[server][replication]") {
  Cluster cluster;
  cluster.Start({"server-2"});
  const auto push = Push(cluster, 1);
  REQUIRE(cluster.mail.size() == 1);
  Cluster::Letter letter = cluster.mail[0];
  v1::ReplicateBatch batch;
  for (const ReplicaRequest& each : letter.requests) *batch.add_messages() = *each.message;
  v1::ReplicateBatchAnswer answer;
  std::optional<absl::Status> ended;
  const auto replicate = [&] {
    cluster["server-2"].replica_calls().ReplicateBatch(
        batch, &answer, [&](const absl::Status& status) { ended = status; });
    REQUIRE(ended.has_value());
    return *ended;
  };
  SECTION("a record cannot be") {
    batch.mutable_messages(1)->mutable_records(0)->set_values("abcd");
    REQUIRE_OK(replicate());
    REQUIRE(answer.results_size() == kBuckets);
    for (int i = 0; i < kBuckets; ++i) {
      CHECK(answer.results(i).code() == (i == 1 ? 3 : 0));
      CHECK(answer.results(i).held().position() == (i == 1 ? 0 : 1));
    }
  }
  SECTION("an old term") {
    batch.mutable_messages(2)->set_term(0);
    REQUIRE_OK(replicate());
    CHECK(answer.results(2).code() == static_cast<int>(StatusCode::kFailedPrecondition));
    CHECK(answer.results(3).code() == 0);
  }
  SECTION("another job's: none is looked at") {
    batch.mutable_messages(3)->set_job_id("vgg-2");
    CHECK_STATUS(replicate(), StatusCode::kInvalidArgument, "a message of job vgg-2");
    CHECK(answer.results().empty());
  }
  SECTION("none at all") {
    batch.clear_messages();
    CHECK_STATUS(replicate(), StatusCode::kInvalidArgument, "0 messages: expected 1 to 1024");
  }
  SECTION("too many") {
    while (batch.messages_size() <= 1024) *batch.add_messages() = batch.messages(0);
    CHECK_STATUS(replicate(), StatusCode::kInvalidArgument, "1025 messages: expected 1 to 1024");
  }
}

TEST_CASE("Replicate batch: what is too much for one travels in several", "[server][replication]") {
  Cluster cluster;
  cluster.Start({"server-2"});
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 1'400'000; ++key) keys.push_back(key);  // 16 bytes each.
  std::optional<absl::Status> ended;
  v1::PushResponse response;
  cluster["server-1"].calls().Push(Detach(RowPushOf(0, kBuckets, keys, 1.0f)), &response,
                                   [&](const absl::Status& status) { ended = status; });
  CHECK(cluster.mail.size() == kBuckets);  // Some 5.6 MB each: no two are 8 MiB or less.
  while (!cluster.mail.empty()) cluster.DeliverOne();
  REQUIRE_OK(*ended);
}

TEST_CASE("Replicate batch: its parts are counted before it is parsed", "[server][replication]") {
  constexpr auto invalid = StatusCode::kInvalidArgument;
  // As much as a primary sends, and more than is short.
  v1::ReplicateBatch most;
  for (int i = 0; i < 1024; ++i) {
    v1::ReplicateRequest* message = most.add_messages();
    message->set_job_id("lenet-1");
    for (int position = 1; position <= 64; ++position) {
      v1::ShardRecord* record = message->add_records();
      record->set_position(position);
      record->mutable_push()->set_incarnation(~uint64_t{0});
    }
  }
  const std::string bytes = most.SerializeAsString();
  REQUIRE(bytes.size() > 1 << 20);
  REQUIRE_OK_AND_ASSIGN(const v1::ReplicateBatch parsed, ParseBatch(absl::Cord(bytes)));
  CHECK(parsed.SerializeAsString() == bytes);
  CHECK_STATUS(ParseBatch(absl::Cord(bytes.substr(0, bytes.size() - 1))),
               absl::StatusCode::kDataLoss, "replicate: the message cannot be read");
  CHECK_STATUS(ParseBatch(absl::Cord("no batch")), absl::StatusCode::kDataLoss,
               "replicate: the message cannot be");
  // Two bytes a record: field 7, length 0.
  std::string records;
  for (int i = 0; i < 1 << 20; ++i) records.append({7 << 3 | 2, 0});
  v1::ReplicateBatch many;
  // These bytes as an unknown field of a length are what `messages` is.
  many.GetReflection()->MutableUnknownFields(&many)->AddLengthDelimited(1, records);
  CHECK_STATUS(ParseBatch(absl::Cord(many.SerializeAsString())), invalid,
               "a batch of 1 messages has 1048578 parts and 0 numbers: expected at most 1048576");
}

TEST_CASE("Replicate batch: what is damaged is found, and an answer of others fails every message",
          "[server][replication]") {
  v1::ReplicateBatchAnswer answer;
  answer.add_results()->mutable_held()->set_position(7);
  answer.add_results()->set_code(static_cast<int>(StatusCode::kNotFound));
  Seal(&answer);
  REQUIRE_OK(CheckArrived(answer));
  const std::vector<ReplicaOutcome> outcomes = OutcomesOf(2, absl::OkStatus(), answer);
  REQUIRE(outcomes.size() == 2);
  REQUIRE_OK(outcomes[0].status);
  CHECK(outcomes[0].response.position() == 7);
  CHECK(outcomes[1].status.code() == StatusCode::kNotFound);

  const std::vector<ReplicaOutcome> others = OutcomesOf(1, absl::OkStatus(), answer);
  CHECK_STATUS(others[0].status, StatusCode::kInternal, "2 results: expected 1");
  const std::vector<ReplicaOutcome> lost = OutcomesOf(2, absl::UnavailableError("away"), answer);
  CHECK_STATUS(lost[1].status, StatusCode::kUnavailable, "away");
  answer.mutable_results(0)->mutable_held()->set_position(8);
  CHECK_STATUS(CheckArrived(answer), StatusCode::kDataLoss, "were damaged on their way");
  v1::ReplicateBatch batch;
  batch.add_messages()->set_job_id("lenet-1");
  CHECK_STATUS(CheckArrived(batch), StatusCode::kDataLoss, "has no checksum");
  Seal(&batch);
  REQUIRE_OK(CheckArrived(batch));
}

}  // namespace
}  // namespace capstan::server::replicate_batch_test
