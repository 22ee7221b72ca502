#include "worker/client/push_pull_core.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/sparse/key_batch.h"
#include "common/testing/status_matchers.h"

namespace capstan::worker::push_pull_core_test {
namespace {

constexpr int64_t kShardBytes = 32;  // 8 elements.

struct FakeTransfer final : Transfer {
  bool Start(Request /*request*/, Done /*done*/) override { return true; }
  void Cancel() override { cancelled = true; }
  bool cancelled = false;
};

struct FakeTransport final : Transport {
  std::shared_ptr<Transfer> NewTransfer(OpKind /*kind*/) override {
    return std::make_shared<FakeTransfer>();
  }
  void AskRouting(const JobId& /*job*/, absl::Duration /*timeout*/, RoutingDone /*done*/) override {
  }
  bool MustWaitForRoom(OpKind /*kind*/, int64_t /*bytes*/) const override { return full; }
  void SetSharedBytes(int64_t bytes) override { shared_bytes = bytes; }
  bool WantsOffer(Instant /*now*/) const override { return wants_offer; }
  bool full = false;
  bool wants_offer = false;
  int64_t shared_bytes = 0;
};

bool IsCancelled(const ClientCall& call) {
  return static_cast<const FakeTransfer&>(*call.transfer).cancelled;
}

using Calls = std::vector<std::shared_ptr<ClientCall>>;

// A core with two servers: shards 0 and 1 of table 0 are on alpha, shard 2 on beta.
struct CoreFixture {
  explicit CoreFixture(int64_t push_bytes_max,
                       Acknowledgement acknowledgement = Acknowledgement::kEachPush)
      : core({.session = {.chunk_bytes_min = 1,
                          .chunk_bytes_max = kShardBytes,  // One shard a message.
                          .acknowledgement = acknowledgement},
              .push_bytes_max = push_bytes_max,
              .shared_memory_bytes = 1 << 20,
              .make_transport = [this](const std::string&, const std::string& address) {
                return transports[address] = std::make_shared<FakeTransport>();
              }}) {
    SetRouting(1, {0, 0, 1});
  }

  void SetRouting(uint64_t generation, const std::vector<int>& server_by_shard) {
    Routing routing{.generation = Generation(generation),
                    .servers = {"alpha", "beta"},
                    .addresses = {"alpha:1", "beta:1"}};
    for (int i = 0; i < 3; ++i) {
      routing.shards.push_back({.key = {TableId(0), ShardId(i)},
                                .elements = {i * elements, (i + 1) * elements},
                                .server = server_by_shard[static_cast<size_t>(i)]});
    }
    array.resize(static_cast<size_t>(3 * elements));
    core.SetRouting(std::move(routing), now, &actions);
  }
  absl::StatusOr<OpId> Push(int64_t iteration, bool held = false) {
    return core.Start({.kind = OpKind::kPush, .iteration = Iteration(iteration), .held = held},
                      {.gradient = std::make_shared<const TableArrays>(TableArrays{array}),
                       .keys = std::make_shared<const AllTableKeys>()},
                      now, &actions);
  }
  absl::StatusOr<OpId> Pull(int64_t iteration) {
    return core.Start({.kind = OpKind::kPull, .iteration = Iteration(iteration)},
                      {.destination = &parameters, .keys = std::make_shared<const AllTableKeys>()},
                      now, &actions);
  }
  // Takes the calls that may leave now, as the client's sender does.
  Calls Taken() {
    Calls calls = std::exchange(actions.start, {});
    while (core.queue().IsReady()) {
      if (auto call = core.queue().Take().call) calls.push_back(std::move(call));
    }
    return calls;
  }
  bool Answer(const std::shared_ptr<ClientCall>& call,
              const absl::Status& status = absl::OkStatus()) {
    if (status.ok() && core.IsExpected(*call)) core.BeginRead(*call);
    DecodedReply reply;
    reply.shards.resize(call->message.shards.size());
    return core.OnReply(call, status, reply, now, &actions);
  }

  Instant now;
  std::map<std::string, std::shared_ptr<FakeTransport>> transports;
  int64_t elements = 8;  // Elements of each shard.
  std::vector<float> array = std::vector<float>(24);
  TableArrays parameters = {array};
  PushPullCore::Actions actions;
  PushPullCore core;
};

// The operation and the first shard of each call.
std::vector<std::pair<uint64_t, int>> Heads(const Calls& calls) {
  std::vector<std::pair<uint64_t, int>> heads;
  for (const auto& call : calls) {
    heads.emplace_back(call->message.op.value(), call->message.shards.front().key.shard.value());
  }
  return heads;
}

using HeadList = std::vector<std::pair<uint64_t, int>>;

TEST_CASE("Push/pull core: an operation's calls leave, and it ends with the last answer",
          "[worker]") {
  CoreFixture fixture(1 << 20);
  REQUIRE_OK_AND_ASSIGN(const OpId push, fixture.Push(0));
  const Calls calls = fixture.Taken();
  CHECK(Heads(calls) == HeadList{{1, 0}, {1, 1}, {1, 2}});
  CHECK(fixture.core.queue().calls().size() == 3);
  for (const auto& call : calls) {
    CHECK(fixture.actions.ended.empty());
    CHECK(fixture.Answer(call));
  }
  CHECK(fixture.actions.ended == std::vector<OpId>{push});
  CHECK_FALSE(fixture.core.IsRunning(push));
  REQUIRE_OK(fixture.core.TakeEnded(push).status);
  CHECK(fixture.core.FindEnded(push) == nullptr);
  CHECK(fixture.core.queue().calls().empty());
  CHECK(fixture.core.queue().messages() == 3);
}

TEST_CASE("Push/pull core: pushes wait for room at their own server only", "[worker]") {
  CoreFixture fixture(kShardBytes);
  REQUIRE_OK(fixture.Push(0));
  const Calls first = fixture.Taken();
  // One push may always be under way; alpha's second one holds back beta's, which is behind it.
  REQUIRE(Heads(first) == HeadList{{1, 0}});
  CHECK_FALSE(fixture.core.queue().IsReady());
  CHECK(fixture.core.queue().HasPushes());
  CHECK(fixture.Answer(first[0]));
  CHECK(Heads(fixture.Taken()) == HeadList{{1, 1}, {1, 2}});
}

TEST_CASE("Push/pull core: a push that waits for long is taken without room", "[worker]") {
  CoreFixture fixture(kShardBytes);
  REQUIRE_OK(fixture.Push(0));
  REQUIRE(fixture.Taken().size() == 1);
  const std::shared_ptr<ClientCall> late = fixture.core.queue().TakeLatePush();
  REQUIRE(late != nullptr);
  CHECK(Heads({late}) == HeadList{{1, 1}});
  CHECK(Heads(fixture.Taken()) == HeadList{{1, 2}});  // Beta has room.
}

TEST_CASE("Push/pull core: pushes that are answered by iteration do not wait for room",
          "[worker]") {
  CoreFixture fixture(kShardBytes, Acknowledgement::kWholeIteration);
  for (const auto& [address, transport] : fixture.transports) transport->full = true;
  REQUIRE_OK(fixture.Push(0));
  CHECK(fixture.Taken().size() == 3);
}

TEST_CASE("Push/pull core: lower shards and older operations overtake pushes that wait",
          "[worker]") {
  CoreFixture fixture(1 << 20);
  REQUIRE_OK_AND_ASSIGN(const OpId first, fixture.Push(0, /*held=*/true));
  fixture.core.Release(first, TableId(0), 16, fixture.now, &fixture.actions);
  fixture.core.Release(first, TableId(0), 8, fixture.now, &fixture.actions);
  fixture.core.Release(first, TableId(0), 0, fixture.now, &fixture.actions);
  CHECK(Heads(fixture.Taken()) == HeadList{{1, 0}, {1, 1}, {1, 2}});
}

TEST_CASE("Push/pull core: small pushes are taken together, large ones are left", "[worker]") {
  CoreFixture fixture(1 << 20);
  REQUIRE_OK(fixture.Push(0));
  CHECK(fixture.core.queue().TakeSmallPushes().size() == 3);
  CHECK(fixture.core.queue().empty());
  CoreFixture large(int64_t{1} << 40);
  large.elements = CallQueue::kSmallBytesMax / 8;  // Three of them take 1.5 times the limit.
  large.SetRouting(2, {0, 0, 1});
  REQUIRE_OK(large.Push(0));
  CHECK(large.core.queue().TakeSmallPushes().empty());
  CHECK(large.Taken().size() == 3);
}

TEST_CASE("Push/pull core: a pull without room waits, and holds back no push", "[worker]") {
  CoreFixture fixture(1 << 20);
  fixture.transports.at("alpha:1")->full = true;
  REQUIRE_OK(fixture.Pull(0));
  CHECK(fixture.Taken().empty());
  CHECK_FALSE(fixture.core.queue().empty());
  fixture.transports.at("alpha:1")->full = false;
  CHECK(Heads(fixture.Taken()) == HeadList{{1, 0}, {1, 1}, {1, 2}});
}

TEST_CASE("Push/pull core: what waits for a server that lost its shards is dropped", "[worker]") {
  CoreFixture fixture(kShardBytes);
  REQUIRE_OK(fixture.Push(0));
  const Calls sent = fixture.Taken();
  REQUIRE(Heads(sent) == HeadList{{1, 0}});
  fixture.SetRouting(2, {1, 1, 1});
  CHECK(IsCancelled(*sent[0]));
  CHECK_FALSE(fixture.core.IsExpected(*sent[0]));
  CHECK_FALSE(fixture.Answer(sent[0], absl::CancelledError("")));
  CHECK(Heads(fixture.Taken()) == HeadList{{1, 0}});  // To beta, again one at a time.
  CHECK(fixture.core.queue().calls().size() == 3);
}

TEST_CASE("Push/pull core: readers are known until their answer is in", "[worker]") {
  CoreFixture fixture(1 << 20);
  REQUIRE_OK_AND_ASSIGN(const OpId pull, fixture.Pull(0));
  const Calls calls = fixture.Taken();
  REQUIRE(calls.size() == 3);
  fixture.core.BeginRead(*calls[0]);
  CHECK(fixture.core.IsRead());
  CHECK(fixture.core.IsRead(pull));
  fixture.core.CancelReaders(pull);
  CHECK(IsCancelled(*calls[0]));
  CHECK_FALSE(IsCancelled(*calls[1]));
  fixture.core.CancelPull(pull, fixture.now, &fixture.actions);
  CHECK(IsCancelled(*calls[1]));
  CHECK(fixture.core.IsRead(pull));
  for (const auto& call : calls) fixture.core.Drop(call);
  CHECK_FALSE(fixture.core.IsRead());
  CHECK(fixture.core.queue().calls().empty());
}

TEST_CASE("Push/pull core: a broken answer is asked for again, without a version that is held",
          "[worker]") {
  CoreFixture fixture(1 << 20);
  REQUIRE_OK(fixture.Pull(0));
  Calls calls = fixture.Taken();
  for (const auto& call : calls) {
    fixture.core.BeginRead(*call);
    DecodedReply reply;
    reply.shards = {{.version = Version(7)}};
    CHECK(fixture.core.OnReply(call, absl::OkStatus(), reply, fixture.now, &fixture.actions));
  }
  REQUIRE_OK(fixture.Pull(1));
  calls = fixture.Taken();
  REQUIRE(calls.size() == 3);
  CHECK(calls[0]->message.shards[0].held_version == 7);
  fixture.core.BeginRead(*calls[0]);
  CHECK_FALSE(fixture.Answer(calls[0], absl::UnavailableError("broken off")));
  fixture.now = fixture.now + absl::Seconds(1);
  fixture.core.Tick(fixture.now, &fixture.actions);
  calls = fixture.Taken();
  REQUIRE(calls.size() == 1);
  CHECK(calls[0]->message.shards[0].held_version == -1);
}

TEST_CASE("Push/pull core: an offer comes before the calls that made it due", "[worker]") {
  CoreFixture fixture(1 << 20);
  fixture.transports.at("alpha:1")->wants_offer = true;
  REQUIRE_OK(fixture.Push(0));
  CHECK(fixture.core.queue().Take().offer == fixture.transports.at("alpha:1").get());
}

TEST_CASE("Push/pull core: servers share memory for what their shards take", "[worker]") {
  CoreFixture fixture(1 << 20);
  const int64_t shard = fixture.transports.at("beta:1")->shared_bytes;
  CHECK(shard > 0);
  CHECK(fixture.transports.at("alpha:1")->shared_bytes == 2 * shard);
  fixture.SetRouting(2, {1, 1, 1});
  CHECK(fixture.transports.at("alpha:1")->shared_bytes == 0);
  CHECK(fixture.transports.at("beta:1")->shared_bytes == 3 * shard);
}

// A core whose table 0 has rows in four buckets, all on one server.
struct RowsFixture {
  static constexpr int64_t kChunkBytesMax = 1 << 10;

  RowsFixture()
      : core({.session = {.chunks_wanted = 1,
                          .chunk_bytes_min = 1,
                          .chunk_bytes_max = kChunkBytesMax},
              .bucket_bytes = {8},
              .make_transport = [](const std::string&, const std::string&) {
                return std::make_shared<FakeTransport>();
              }}) {
    Routing routing{.generation = Generation(1), .servers = {"alpha"}, .addresses = {"alpha:1"}};
    for (int bucket = 0; bucket < 4; ++bucket) {
      routing.shards.push_back(
          {.key = {TableId(0), ShardId(bucket)}, .elements = {bucket, bucket + 1}});
    }
    core.SetRouting(std::move(routing), now, &actions);
  }
  // Pulls or pushes rows of `dim` floats, so many in each bucket.
  absl::StatusOr<OpId> Start(OpKind kind, const std::vector<int64_t>& rows_by_bucket, int64_t dim) {
    KeyBatch batch{.bucket_begin = {0}};
    for (const int64_t count : rows_by_bucket) {
      batch.bucket_begin.push_back(batch.bucket_begin.back() + count);
    }
    batch.keys.resize(static_cast<size_t>(batch.bucket_begin.back()));
    auto rows = std::make_shared<TableArrays>(1);
    rows->front().resize(static_cast<size_t>(batch.size() * dim));
    auto keys = std::make_shared<const AllTableKeys>(
        AllTableKeys{{.batch = std::make_shared<const KeyBatch>(std::move(batch)), .dim = dim}});
    kept.push_back(rows);
    return core.Start({.kind = kind},
                      {.gradient = std::shared_ptr<const TableArrays>(rows),
                       .destination = rows.get(),
                       .keys = std::move(keys)},
                      now, &actions);
  }
  Calls Taken() {
    Calls calls = std::exchange(actions.start, {});
    while (core.queue().IsReady()) calls.push_back(core.queue().Take().call);
    return calls;
  }
  void Answer(const std::shared_ptr<ClientCall>& call) {
    DecodedReply reply;
    reply.shards.resize(call->message.shards.size());
    CHECK(core.OnReply(call, absl::OkStatus(), reply, now, &actions));
  }

  Instant now;
  std::vector<std::shared_ptr<TableArrays>> kept;
  PushPullCore::Actions actions;
  PushPullCore core;
};

TEST_CASE("Push/pull core: rows are cut into messages by what an operation names", "[worker]") {
  RowsFixture fixture;
  const OpKind kind = GENERATE(OpKind::kPush, OpKind::kPull);
  REQUIRE_OK(fixture.Start(kind, {1, 1, 1, 1}, /*dim=*/4));
  Calls calls = fixture.Taken();
  REQUIRE(Heads(calls) == HeadList{{1, 0}});
  CHECK(calls[0]->message.shards.size() == 4);
  fixture.Answer(calls[0]);
  // Two rows of a bucket take 784 bytes with their keys, all four buckets three times a message.
  REQUIRE_OK(fixture.Start(kind, {2, 2, 2, 2}, /*dim=*/96));
  calls = fixture.Taken();
  REQUIRE(Heads(calls) == HeadList{{2, 0}, {2, 1}, {2, 2}, {2, 3}});
  // The next operation on these shards waits for all of them.
  REQUIRE_OK(fixture.Start(OpKind::kPush, {1, 1, 1, 1}, /*dim=*/4));
  for (const auto& call : calls) {
    CHECK(fixture.Taken().empty());
    fixture.Answer(call);
  }
  CHECK(Heads(fixture.Taken()) == HeadList{{3, 0}});
}

TEST_CASE("Push/pull core: the rows of one bucket must fit in a message", "[worker]") {
  RowsFixture fixture;
  constexpr int64_t kFit = (int64_t{60 << 20} - 8) / 4;  // Floats behind one key.
  CHECK_STATUS(fixture.Start(OpKind::kPull, {0, 1, 0, 0}, kFit + 1),
               absl::StatusCode::kInvalidArgument,
               "table 0: 1 keys of one bucket take 62914564 bytes with their values, expected at "
               "most 62914560: name fewer keys, or use more buckets");
  CHECK(fixture.core.queue().empty());
  REQUIRE_OK(fixture.Start(OpKind::kPull, {0, 1, 0, 0}, kFit));
}

TEST_CASE("Push/pull core: arrays and tables that do not fit are refused", "[worker]") {
  CoreFixture fixture(1 << 20);
  fixture.array.resize(20);
  CHECK_STATUS(fixture.Push(0), absl::StatusCode::kInvalidArgument,
               "table 0 has 20 elements here, expected at least 24");
  Routing other{.generation = Generation(2), .shards = {{.key = {TableId(0), ShardId(0)}}}};
  CHECK_STATUS(fixture.core.IsNewer(other), absl::StatusCode::kInvalidArgument,
               "1 shards, expected 3 as before");
  other.generation = Generation(1);
  CHECK(fixture.core.IsNewer(other).value() == false);
  CHECK(fixture.core.queue().empty());
}

}  // namespace
}  // namespace capstan::worker::push_pull_core_test
