#include "server/engine/job/held_job.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/sparse/key_batch.h"
#include "common/testing/status_matchers.h"
#include "common/wire/wire_values.h"
#include "server/engine/testing/job_fixture.h"

namespace capstan::server::held_job_test {
namespace {

using absl::StatusCode;

constexpr ConsistencyRule kBsp{.mode = ConsistencyMode::kBsp, .slots = 2};
constexpr ConsistencyRule kSsp0{.mode = ConsistencyMode::kSsp, .staleness_bound = 0};

// A pull in flight, as a caller sees it.
struct PullCall {
  PullAnswer response;
  std::optional<absl::Status> ended;
  std::optional<HeldJob::CallId> waits;

  void Start(HeldJob& job, const v1::PullRequest& request) {
    waits = job.calls().Pull(request, &response, [this](const absl::Status& status) {
      REQUIRE_FALSE(ended.has_value());  // Exactly once.
      ended = status;
    });
  }
};

absl::Status PushInto(HeldJob& job, const v1::PushRequest& request, v1::PushResponse* response) {
  std::optional<absl::Status> ended;
  const auto waits = job.calls().Push(Detach(request), response,
                                      [&](const absl::Status& status) { ended = status; });
  REQUIRE(ended.has_value());  // Without replicas and log a push never waits.
  REQUIRE_FALSE(waits.has_value());
  return *ended;
}

absl::Status Push(HeldJob& job, const v1::PushRequest& request) {
  v1::PushResponse response;
  return PushInto(job, request, &response);
}

absl::Status Pull(HeldJob& job, const v1::PullRequest& request) {
  PullCall call;
  call.Start(job, request);
  return call.ended.value_or(absl::UnknownError("waits"));
}

TEST_CASE("Held job: what begins anew from a checkpoint makes room first", "[server]") {
  const auto budget = std::make_shared<MemoryBudget>(MemoryBudget::Limits{});
  const auto job = MakeTestJob({.consistency = kBsp, .budget = budget});
  const int64_t whole = budget->HeldBy(job->job());
  REQUIRE(whole > 0);
  PullCall waiting;
  waiting.Start(*job, PullOf(0, 1, 1000));
  REQUIRE_FALSE(waiting.ended.has_value());
  v1::RoutingTable anew = TestRouting(2, "server-1", 2);
  SECTION("all of it") {
    job->assignment().ForgetForRestore(anew, Term(2));
    CHECK(budget->HeldBy(job->job()) == 0);
    CHECK_STATUS(waiting.ended.value(), StatusCode::kFailedPrecondition, "no longer held");
    const auto missing =
        job->assignment().MissingShards(anew, {.restore_term = Term(2), .log_term = Term(0)});
    REQUIRE_OK(missing);
    CHECK(missing->size() == 2);
  }
  SECTION("not where some shards live on") {
    anew.mutable_shards(1)->set_term(1);
    job->assignment().ForgetForRestore(anew, Term(2));
    CHECK(budget->HeldBy(job->job()) == whole);
  }
  SECTION("not for another reason than a checkpoint") {
    job->assignment().ForgetForRestore(anew, Term(0));
    job->assignment().ForgetForRestore(anew, Term(3));
    CHECK(budget->HeldBy(job->job()) == whole);
  }
  SECTION("not by an older table") {
    anew.set_generation(1);
    job->assignment().ForgetForRestore(anew, Term(2));
    CHECK(budget->HeldBy(job->job()) == whole);
  }
  SECTION("not what is held from that checkpoint already") {
    job->assignment().ForgetForRestore(TestRouting(2, "server-1", 1), Term(1));
    CHECK(budget->HeldBy(job->job()) == whole);
  }
}

TEST_CASE("Held job: a push is answered shard by shard, in the request's order", "[server]") {
  const auto job = MakeTestJob(kBsp);
  v1::PushResponse response;
  REQUIRE_OK(PushInto(*job, PushOf(0, 0, 0, 1.0f), &response));
  REQUIRE(response.shards_size() == 2);
  CHECK(response.shards(1).outcome() == v1::ShardPushResult::RECORDED);
  response.Clear();
  REQUIRE_OK(PushInto(*job, PushOf(1, 0, 1, 2.0f), &response));
  CHECK(response.shards(0).version() == 1);
  response.Clear();
  REQUIRE_OK(PushInto(*job, PushOf(1, 0, 1, 2.0f), &response));
  CHECK(response.shards(0).outcome() == v1::ShardPushResult::DUPLICATE);
  PullCall pull;
  pull.Start(*job, PullOf(0, 1, 0));
  CHECK(NumberIn(pull.response) == -3.0f);
}

TEST_CASE("Held job: a pull waits for its slowest shard, and reads one version", "[server]") {
  const auto job = MakeTestJob(kBsp);
  PullCall pull;
  pull.Start(*job, PullOf(0, 1, 1000));
  REQUIRE(pull.waits.has_value());
  CHECK(job->NextDeadline() == Instant() + absl::Seconds(1));
  REQUIRE_OK(Push(*job, PushOf(0, 0, 0, 1.0f)));
  v1::PushRequest other = PushOf(1, 0, 1, 1.0f);
  v1::PushRequest half = other;
  half.mutable_shards()->DeleteSubrange(1, 1);
  other.mutable_shards()->DeleteSubrange(0, 1);
  REQUIRE_OK(Push(*job, half));
  CHECK_FALSE(pull.ended.has_value());
  REQUIRE_OK(Push(*job, other));
  REQUIRE(pull.ended.has_value());
  REQUIRE_OK(*pull.ended);
  CHECK(NumberIn(pull.response) == -2.0f);
  CHECK(job->NextDeadline() == Instant::InfiniteFuture());
}

TEST_CASE("Held job: a snapshot is kept of the version that its order names, or not at all",
          "[server]") {
  const auto job = MakeTestJob(kBsp);
  const auto keep = [&](uint64_t id) {
    v1::CheckpointOrder order;
    order.set_checkpoint_id(id);
    order.set_version(1);
    order.add_readers(1);
    return job->snapshot_calls().Keep(order);
  };
  REQUIRE_OK(Push(*job, PushOf(0, 0, 0, 1.0f)));
  REQUIRE_OK(Push(*job, PushOf(1, 0, 1, 1.0f)));
  REQUIRE_OK(keep(1));
  for (int32_t rank = 0; rank < 2; ++rank) {
    v1::PushRequest first_shard = PushOf(rank, 1, rank, 1.0f);
    first_shard.mutable_shards()->DeleteSubrange(1, 1);
    REQUIRE_OK(Push(*job, first_shard));
  }
  CHECK_STATUS(keep(2), StatusCode::kFailedPrecondition,
               "table 0 shard 0 is at version 2, expected that of iteration 1; ask again");
}

TEST_CASE("Held job: a pull past its wait limit names whom it waits for, shard by shard",
          "[server]") {
  const auto job = MakeTestJob(kBsp);
  REQUIRE_OK(Push(*job, PushOf(0, 0, 1, 1.0f)));
  PullCall pull;
  pull.Start(*job, PullOf(0, 1, 500));
  job->Tick(Instant() + absl::Milliseconds(499));
  CHECK_FALSE(pull.ended.has_value());
  job->Tick(Instant() + absl::Milliseconds(500));
  REQUIRE(pull.ended.has_value());
  REQUIRE_OK(*pull.ended);
  CHECK(pull.response.head.shards(0).outcome() == v1::ShardValues::NOT_READY);
  REQUIRE(pull.response.head.waiting_on_size() == 2);
  CHECK(pull.response.head.waiting_on(1).shard() == 1);
  REQUIRE(pull.response.head.waiting_on(1).slots_size() == 1);
  CHECK(pull.response.head.waiting_on(1).slots(0) == 0);
}

TEST_CASE("Held job: a new membership releases those who waited for the dead", "[server]") {
  const auto job = MakeTestJob(kSsp0);
  const Member first{.rank = Rank(0), .incarnation = Incarnation(1), .active = true};
  const Member second{.rank = Rank(1), .incarnation = Incarnation(2), .active = true};
  job->assignment().SetMembership({.generation = Generation(1), .members = {first, second}});
  REQUIRE_OK(Push(*job, PushOf(0, 0, -1, 1.0f)));
  PullCall pull;
  pull.Start(*job, PullOf(0, 1, 1000));
  CHECK_FALSE(pull.ended.has_value());
  job->assignment().SetMembership({.generation = Generation(2), .members = {first}});
  CHECK(job->assignment().membership_generation() == Generation(2));
  REQUIRE(pull.ended.has_value());
  CHECK(NumberIn(pull.response) == -1.0f);
}

TEST_CASE("Held job: a cancelled call is forgotten", "[server]") {
  const auto job = MakeTestJob(kBsp);
  PullCall pull;
  pull.Start(*job, PullOf(0, 1, 1000));
  REQUIRE(pull.waits.has_value());
  job->calls().Cancel(*pull.waits);
  job->calls().Cancel(*pull.waits);
  REQUIRE(pull.ended.has_value());
  CHECK(pull.ended->code() == StatusCode::kCancelled);
  CHECK(job->NextDeadline() == Instant::InfiniteFuture());
  REQUIRE_OK(Push(*job, PushOf(0, 0, 0, 1.0f)));
  REQUIRE_OK(Push(*job, PushOf(0, 0, 1, 1.0f)));
}

TEST_CASE("Held job: closing ends waiting calls and refuses later ones", "[server]") {
  const auto job = MakeTestJob(kBsp);
  PullCall pull;
  pull.Start(*job, PullOf(0, 1, 1000));
  job->Close(absl::NotFoundError("no longer held here"));
  REQUIRE(pull.ended.has_value());
  CHECK_STATUS(*pull.ended, StatusCode::kNotFound, "no longer held here");
  CHECK_STATUS(Push(*job, PushOf(0, 0, 0, 1.0f)), StatusCode::kNotFound, "no longer held here");
}

TEST_CASE("Held job: a snapshot is read by anyone, without waiting", "[server]") {
  const auto job = MakeTestJob(kBsp);
  PullCall pull;
  pull.Start(*job, SnapshotOf());
  REQUIRE(pull.ended.has_value());
  CHECK(NumberIn(pull.response) == 0.0f);
}

TEST_CASE("Held job: numbers come and go in any format, and are kept as fp32", "[server]") {
  const auto [type, format] = GENERATE(table<v1::ValueType, NumberFormat>(
      {{v1::BFLOAT16, NumberFormat::kBf16}, {v1::FLOAT16, NumberFormat::kFp16}}));
  const auto job = MakeTestJob(kSsp0);
  v1::PushRequest push = PushOf(0, 0, -1, 0.0f);
  for (int i = 0; i < 2; ++i) {
    const std::vector<float> values(static_cast<size_t>(kTestShardElements[i]), 0.375f);
    std::string bytes(values.size() * 2, 0);
    EncodeNumbers(format, values, bytes.data());
    push.mutable_shards(i)->set_value_type(type);
    push.mutable_shards(i)->set_values(bytes);
  }
  REQUIRE_OK(Push(*job, push));
  PullCall exact;
  exact.Start(*job, SnapshotOf());
  CHECK(NumberIn(exact.response) == -0.375f);
  PullCall half;
  v1::PullRequest pull = SnapshotOf();
  for (v1::ShardPull& shard : *pull.mutable_shards()) shard.set_value_type(type);
  half.Start(*job, pull);
  REQUIRE(half.response.head.shards(1).value_type() == type);
  std::vector<float> values(8);
  REQUIRE(half.response.values[1].size() == 16);
  WireValues(half.response.values[1], format).CopyTo(values.data());
  CHECK(values == std::vector<float>(8, -0.375f));
  push.mutable_shards(0)->mutable_values()->resize(30);
  CHECK_STATUS(Push(*job, push), StatusCode::kInvalidArgument,
               "expected 32 bytes = 16 elements of");
}

TEST_CASE("Held job: an old routing table is refused, a newer one asked for again", "[server]") {
  const auto job = MakeTestJob(kBsp);
  job->assignment().SetRouting(TestRouting(3), {});
  job->assignment().SetRouting(TestRouting(2), {});  // Never back.
  CHECK_STATUS(Push(*job, PushOf(0, 0, 0, 1.0f)), StatusCode::kFailedPrecondition,
               "push to lenet-1: routing generation 1: expected 3");
  v1::PullRequest pull = PullOf(0, 0, 0);
  pull.mutable_caller()->set_routing_generation(4);
  CHECK_STATUS(Pull(*job, pull), StatusCode::kUnavailable, "this server has 3");
}

TEST_CASE("Held job: a bad push is refused whole, naming what was expected", "[server]") {
  const auto job = MakeTestJob(kBsp);
  v1::PushRequest push = PushOf(0, 0, 0, 1.0f);
  const auto invalid = StatusCode::kInvalidArgument;
  SECTION("wrong byte count") {
    push.mutable_shards(1)->set_values(std::string(17, 'x'));
    CHECK_STATUS(Push(*job, push), invalid,
                 "table 0 shard 1: expected 32 bytes = 8 elements of FLOAT32, got 17");
  }
  SECTION("a shard twice") {
    *push.add_shards() = push.shards(0);
    CHECK_STATUS(Push(*job, push), invalid, "table 0 shard 0 is twice in one message");
  }
  SECTION("no shards") {
    push.clear_shards();
    CHECK_STATUS(Push(*job, push), invalid, "no shards: expected at least 1");
  }
  SECTION("too many shards") {
    for (int i = 0; i < kShardsPerMessageMax; ++i) push.add_shards();
    CHECK_STATUS(Push(*job, push), invalid, "16386 shards in one message: expected at most 16384");
  }
  SECTION("slots out of range") {
    push.set_slot_begin(2);
    push.set_slot_end(3);
    CHECK_STATUS(Push(*job, push), invalid, "slots [2, 3): expected a range inside [0, 2)");
  }
  SECTION("an unknown value type") {
    push.mutable_shards(1)->set_value_type(v1::VALUE_TYPE_UNSPECIFIED);
    CHECK_STATUS(Push(*job, push), invalid, "table 0 shard 1: value_type 0: expected FLOAT32");
  }
  SECTION("a shard held elsewhere") {
    push.mutable_shards(1)->set_shard(7);
    CHECK_STATUS(Push(*job, push), StatusCode::kNotFound, "table 0 shard 7 is not held here");
  }
  SECTION("a negative iteration") {
    push.set_iteration(-1);
    CHECK_STATUS(Push(*job, push), invalid, "iteration -1: expected 0 to");
  }
  SECTION("a reader") {
    push.mutable_caller()->set_rank(-1);
    CHECK_STATUS(Push(*job, push), invalid, "a reader that is no worker may not push");
  }
  SECTION("a fenced incarnation") {
    job->assignment().SetMembership(
        {.generation = Generation(1),
         .members = {{.rank = Rank(0), .incarnation = Incarnation(2)}}});
    CHECK_STATUS(Push(*job, push), StatusCode::kAborted, "incarnation 1 of rank 0 is fenced off");
  }
  CHECK(job->Describe()[0].pushes_applied() == 0);
}

TEST_CASE("Held job: a bad pull is refused, naming what was expected", "[server]") {
  const auto job = MakeTestJob(kBsp);
  v1::PullRequest pull = PullOf(0, 0, 0);
  const auto invalid = StatusCode::kInvalidArgument;
  SECTION("a negative wait limit") {
    pull.set_wait_limit_ms(-1);
    CHECK_STATUS(Pull(*job, pull), invalid, "wait_limit_ms -1: expected 0 to 60000");
  }
  SECTION("a shard twice") {
    *pull.add_shards() = pull.shards(1);
    CHECK_STATUS(Pull(*job, pull), invalid, "table 0 shard 1 is twice in one message");
  }
  SECTION("a shard held elsewhere") {
    pull.mutable_shards(0)->set_table(1);
    CHECK_STATUS(Pull(*job, pull), StatusCode::kNotFound, "table 1 shard 0 is not held here");
  }
  SECTION("a held version that cannot be") {
    pull.mutable_shards(0)->set_held_version(-5);
    CHECK_STATUS(Pull(*job, pull), invalid, "held_version -5");
  }
  SECTION("a rank that cannot be") {
    pull.mutable_caller()->set_rank(5000);
    CHECK_STATUS(Pull(*job, pull), invalid, "rank 5000: expected 0 to 4095");
  }
  SECTION("an iteration for a reader") {
    pull.mutable_caller()->set_rank(-1);
    CHECK_STATUS(Pull(*job, pull), invalid, "may only pull snapshots");
  }
}

constexpr int32_t kBuckets = 2;

// A pull of these rows of table 1 with the names of their lists; `by_name`: the names alone.
v1::PullRequest ListPullOf(const KeyBatch& batch, bool by_name, uint64_t incarnation = 1) {
  v1::PullRequest request;
  *request.mutable_caller() = CallerOf(0, incarnation);
  for (int32_t bucket = 0; bucket < kBuckets; ++bucket) {
    const Range part = batch.InBucket(bucket);
    const KeyListName& name = batch.names[static_cast<size_t>(bucket)];
    v1::ShardPull* shard = request.add_shards();
    shard->set_table(1);
    shard->set_shard(bucket);
    shard->set_held_version(-1);
    shard->mutable_key_list()->set_low(name.low);
    shard->mutable_key_list()->set_high(name.high);
    shard->mutable_key_list()->set_count(name.count);
    if (by_name) continue;
    shard->set_keys(batch.keys.data() + part.begin,
                    static_cast<size_t>(part.size()) * sizeof(uint64_t));
  }
  return request;
}

// The same push with the names of its lists in place of the keys.
v1::PushRequest ByName(v1::PushRequest push, const KeyBatch& batch) {
  for (v1::ShardPush& shard : *push.mutable_shards()) {
    *shard.mutable_key_list() = ListPullOf(batch, true).shards(shard.shard()).key_list();
    shard.mutable_values()->erase(0, static_cast<size_t>(shard.key_list().count()) * 8);
  }
  return push;
}

TEST_CASE(
    "Held job: keys that a pull has named are known by their name to its worker's incarnation",
    "[server]") {
  const auto job = MakeTestJob({.consistency = kSsp0, .buckets = kBuckets});
  const std::vector<uint64_t> keys = {3, 14, 15, 92, 65, 35};
  KeyBatch batch = MakeKeyBatch(keys, kBuckets);
  NameLists(&batch);
  const auto pulled = [&](const v1::PullRequest& request) {
    PullCall call;
    call.Start(*job, request);
    REQUIRE(call.ended.has_value());
    REQUIRE_OK(*call.ended);
    return call.response;
  };
  const v1::PushRequest whole = RowPushOf(0, kBuckets, keys, 1.0f);
  v1::PushResponse response;
  REQUIRE_OK(PushInto(*job, ByName(whole, batch), &response));
  CHECK(response.unknown_key_list());
  CHECK(response.shards().empty());
  CHECK(pulled(ListPullOf(batch, /*by_name=*/true)).head.unknown_key_list());

  const PullAnswer first = pulled(ListPullOf(batch, /*by_name=*/false));
  REQUIRE(first.values.size() == kBuckets);
  CHECK(pulled(ListPullOf(batch, /*by_name=*/true)).values == first.values);
  CHECK(pulled(ListPullOf(batch, true, /*incarnation=*/2)).head.unknown_key_list());
  response.Clear();
  REQUIRE_OK(PushInto(*job, ByName(whole, batch), &response));
  REQUIRE(response.shards_size() == kBuckets);
  CHECK(response.shards(0).outcome() == v1::ShardPushResult::RECORDED);
  const PullAnswer second = pulled(ListPullOf(batch, /*by_name=*/true));
  CHECK(second.values[0] != first.values[0]);
  CHECK(second.values[1] != first.values[1]);
  // The same push with its keys: as after a server that did not know the list.
  response.Clear();
  REQUIRE_OK(PushInto(*job, whole, &response));
  CHECK(response.shards(0).outcome() == v1::ShardPushResult::DUPLICATE);
  CHECK(pulled(ListPullOf(batch, /*by_name=*/true)).values == second.values);
}

TEST_CASE("Held job: of the keys that a pull names, the rows that it wants are sent", "[server]") {
  const auto job = MakeTestJob({.consistency = kSsp0, .buckets = kBuckets});
  std::vector<uint64_t> keys;
  for (uint64_t key = 1; key <= 30; ++key) {  // Every row another number.
    keys.push_back(key);
    v1::PushResponse response;
    REQUIRE_OK(
        PushInto(*job, RowPushOf(0, kBuckets, {key}, static_cast<float>(key), key), &response));
  }
  KeyBatch batch = MakeKeyBatch(keys, kBuckets);
  NameLists(&batch);
  v1::PullRequest request = ListPullOf(batch, /*by_name=*/false);
  request.mutable_shards()->RemoveLast();
  const int64_t count = batch.InBucket(0).size();
  REQUIRE(count >= 10);
  std::string bits(static_cast<size_t>(count + 7) / 8, '\0');
  const std::string none = bits;
  bits[0] = 0x05;  // Keys 0, 2 and 9 of the list.
  bits[1] = 0x02;
  v1::ShardPull& shard = *request.mutable_shards(0);
  shard.set_wanted(bits);
  const auto rows = [&] {
    PullCall call;
    call.Start(*job, request);
    REQUIRE(call.ended.has_value());
    REQUIRE_OK(*call.ended);
    std::vector<float> values(call.response.values[0].size() / sizeof(float));
    WireValues(call.response.values[0]).CopyTo(values.data());
    return values;
  };
  std::vector<float> expected;
  for (const size_t place : {0, 2, 9}) {
    expected.insert(expected.end(), kTestDim, -static_cast<float>(batch.keys[place]));
  }
  CHECK(rows() == expected);
  shard.clear_keys();  // The list's name stands for all its keys.
  CHECK(rows() == expected);
  shard.set_wanted(none);
  CHECK(rows().empty());
  shard.set_wanted("a");
  CHECK_STATUS(Pull(*job, request), StatusCode::kInvalidArgument,
               "table 1 shard 0: wanted: 1 bytes, expected 2 for ");
  shard.set_table(0);
  shard.clear_key_list();
  CHECK_STATUS(Pull(*job, request), StatusCode::kInvalidArgument,
               "table 0 shard 0: wanted: expected nothing, the shard is dense");
}

TEST_CASE("Held job: a list that does not fit what comes with it is refused", "[server]") {
  const auto job = MakeTestJob({.consistency = kSsp0, .buckets = kBuckets});
  KeyBatch batch = MakeKeyBatch(std::vector<uint64_t>{3, 14, 15, 92, 65, 35}, kBuckets);
  NameLists(&batch);
  v1::PullRequest wrong = ListPullOf(batch, /*by_name=*/false);
  wrong.mutable_shards(0)->mutable_key_list()->set_count(77);
  CHECK_STATUS(Pull(*job, wrong), StatusCode::kInvalidArgument, "a list of 77 keys comes with");
  REQUIRE_OK(Pull(*job, ListPullOf(batch, /*by_name=*/false)));
  v1::PushRequest push = ByName(RowPushOf(0, kBuckets, batch.keys, 1.0f), batch);
  push.mutable_shards(1)->mutable_values()->pop_back();
  CHECK_STATUS(Push(*job, push), StatusCode::kInvalidArgument, "bytes of rows: expected");
  v1::PullRequest reader = ListPullOf(batch, /*by_name=*/false);
  reader.set_snapshot(true);
  *reader.mutable_caller() = SnapshotOf().caller();
  REQUIRE_OK(Pull(*job, reader));  // Reads, and nothing is kept for it.
}

}  // namespace
}  // namespace capstan::server::held_job_test
