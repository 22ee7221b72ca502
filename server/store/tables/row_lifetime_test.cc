// Rows of a sparse table that come and go, in all copies of a bucket.
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/row_delta.h"
#include "common/checkpoint/row_pieces.h"
#include "common/random/philox.h"
#include "common/sparse/key_batch.h"
#include "common/status/status_macros.h"
#include "common/testing/status_matchers.h"
#include "proto/parameter_server.pb.h"
#include "server/store/sparse/testing/memory_row_disks.h"
#include "server/store/state_codec.h"
#include "server/store/tables/job_tables.h"

namespace capstan::server::row_lifetime_test {
namespace {

constexpr ShardKey kBucket{TableId(0), ShardId(0)};
constexpr int64_t kDim = 2;

JobTablesConfig Config(ConsistencyMode mode, const v1::SparseSpec& lifetime) {
  v1::TableSpec table;
  table.set_name("rows");
  table.set_rule(v1::OPTIMIZER);
  table.set_elements(1);
  *table.mutable_sparse() = lifetime;
  table.mutable_sparse()->set_dim(kDim);
  table.mutable_sparse()->set_buckets(1);
  table.mutable_sparse()->mutable_initializer()->set_uniform_bound(1.0f);
  JobTablesConfig config;
  config.tables = {table};
  config.optimizer.kind = OptimizerKind::kAdam;
  config.optimizer.learning_rate = 0.1f;
  config.consistency = {.mode = mode, .slots = 2};
  config.seed = 7;
  return config;
}

// A filter so small that it is halved now and then, and a limit that an update nearly fills.
v1::SparseSpec EveryRule() {
  v1::SparseSpec lifetime;
  lifetime.set_admit_after(2);
  lifetime.set_admission_keys(50);
  lifetime.set_admit_probability(0.7f);
  lifetime.set_evict_after_updates(6);
  lifetime.set_rows_max(60);
  return lifetime;
}

v1::SparseSpec Ttl() {
  v1::SparseSpec lifetime;
  lifetime.set_ttl_seconds(64);
  return lifetime;
}

JobTables MakeTables(const JobTablesConfig& config) {
  REQUIRE_OK_AND_ASSIGN(const auto factory, ShardFactory::Make(config));
  JobTables tables(factory);
  REQUIRE_OK_AND_ASSIGN(TableShard made, factory->Initial({kBucket, {0, 1}}));
  tables.Put(kBucket, std::move(made));
  return tables;
}

absl::Status Install(JobTables& tables, const JobTablesConfig& config, const HeldShard& shard,
                     const v1::ShardSnapshot& snapshot) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto factory, ShardFactory::Make(config));
  CAPSTAN_ASSIGN_OR_RETURN(TableShard made, factory->FromSnapshot(shard, snapshot));
  tables.Put(shard.key, std::move(made));
  return absl::OkStatus();
}

class Records final : public ReplySink {
 public:
  void OnPush(const ShardKey&, const ReplyPush&) override {}
  absl::Status OnPull(const ShardKey&, const ReplyPull&, const ShardStore&) override {
    return absl::OkStatus();
  }
  void OnRecord(const ShardKey&, const MakeRecord& made, const Gradient& gradient) override {
    all.push_back(EncodeRecord(made.record, gradient));
  }
  std::vector<v1::ShardRecord> all;
};

// A gradient with what it borrows.
struct Pushed {
  Pushed(const std::vector<uint64_t>& keys, float value)
      : rows(std::make_shared<const std::vector<uint64_t>>(MakeKeyBatch(keys, 1).keys)),
        values(rows->size() * kDim, value),
        gradient(rows, WireValues(values)) {}
  RowKeys rows;
  std::vector<float> values;
  Gradient gradient;
};

// The keys of one slot in one iteration: few keys often, others seldom.
std::vector<uint64_t> DrawKeys(int64_t iteration, int slot) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 25; ++i) {
    const uint64_t draw = MixKey(MixKey(static_cast<uint64_t>(iteration), i), slot == 0 ? 1 : 2);
    keys.push_back(draw % 3 == 0 ? draw % 30 : draw % 400);
  }
  return keys;
}

// Every slot of an iteration, each from a worker of its own; of BSP in either order.
void Push(JobTables& job, const JobTablesConfig& config, int64_t iteration, bool reverse,
          ReplySink& sink) {
  const bool bsp = config.consistency.mode == ConsistencyMode::kBsp;
  for (int i = 0; i < 2; ++i) {
    const int slot = reverse && bsp ? 1 - i : i;
    const Sequence sequence(static_cast<uint64_t>(iteration) + 1);
    const PushHead push{.rank = Rank(slot),
                        .incarnation = Incarnation(1),
                        .iteration = Iteration(iteration),
                        .slot_begin = bsp ? slot : 0,
                        .slot_end = bsp ? slot + 1 : 0,
                        .sequence = sequence,
                        .sequence_low_water = sequence};
    const Pushed pushed(DrawKeys(iteration, slot), 0.5f);
    REQUIRE_OK(job.Push(kBucket, push, pushed.gradient, sink));
  }
}

// The job has trained for so many seconds; each time makes a newer membership.
void Tell(JobTables& job, int64_t clock_seconds, ReplySink& sink) {
  Membership membership{.generation = Generation(static_cast<uint64_t>(clock_seconds)),
                        .members = {},
                        .clock_seconds = clock_seconds};
  for (const int rank : {0, 1}) {
    membership.members.push_back(
        {.rank = Rank(rank), .incarnation = Incarnation(1), .active = true});
  }
  job.SetMembership(kBucket, membership, sink);
}

// Leaves out the core's state, because BSP's replicas do not know of slots.
std::string BytesOfBucket(const JobTables& job) {
  v1::ShardSnapshot snapshot = job.Find(kBucket)->Snapshot().value();
  snapshot.clear_state();
  return snapshot.SerializeAsString();
}

// Captures the bucket for checkpoint `id`. `meanwhile` is called before each piece of rows is read.
v1::ShardSnapshot Capture(JobTables& job, uint64_t id, uint64_t base,
                          const std::function<void()>& meanwhile = nullptr) {
  const PinId pin{id};
  v1::ShardSnapshot captured =
      job.at(kBucket).Capture(CheckpointId(id), CheckpointId(base), pin).value();
  PinnedRead read{.pin = pin, .bytes_max = 1000, .passes = true};
  if (captured.has_since()) read.since = captured.since().version();
  std::optional<uint64_t> next = 0;
  while (next.has_value()) {
    if (meanwhile) meanwhile();
    read.place = *next;
    next = job.ReadPinned(kBucket, read, captured.add_pieces()).value();
  }
  job.Unpin(kBucket, pin);
  REQUIRE_OK(JoinRowPieces(&captured));
  return captured;
}

v1::RowCounts CountsOf(const JobTables& job) {
  return job.Describe([](const ShardKey&) { return true; }).at(0).rows();
}

TEST_CASE("Row lifetime: replicas, and whoever replays the log, hold the same bytes", "[server]") {
  const auto mode = GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kAsp);
  const bool by_time = GENERATE(false, true);
  const JobTablesConfig config = Config(mode, by_time ? Ttl() : EveryRule());
  JobTables primary = MakeTables(config), logged = MakeTables(config), replica = MakeTables(config);
  Records records;
  constexpr int64_t kIterations = 120;
  size_t replica_has = 0;
  for (int64_t iteration = 0; iteration < kIterations; ++iteration) {
    if (iteration % 4 == 3) Tell(primary, 5 * iteration, records);
    Push(primary, config, iteration, /*reverse=*/iteration % 3 == 0, records);
    if (iteration == 50) {
      REQUIRE_OK(
          Install(replica, config, {kBucket, {0, 1}}, primary.Find(kBucket)->Snapshot().value()));
      replica_has = records.all.size();
    }
  }
  for (size_t i = 0; i < records.all.size(); ++i) {
    REQUIRE_OK(logged.Replay(kBucket, records.all[i]));
    if (i >= replica_has) REQUIRE_OK(replica.Replay(kBucket, records.all[i]));
  }
  const std::string expected = BytesOfBucket(primary);
  CHECK((BytesOfBucket(logged) == expected));
  CHECK((BytesOfBucket(replica) == expected));
  const v1::RowCounts counts = CountsOf(primary);
  CHECK(counts.held() > 10);
  CHECK(counts.held() == counts.admitted() - counts.evicted_by_age() - counts.evicted_by_limit());
  if (!by_time) CHECK(counts.refused() > 100);
  CHECK(counts.evicted_by_age() > 100);
}

TEST_CASE("Row lifetime: a copy whose disk fails never counts as one that has the record",
          "[server]") {
  v1::SparseSpec limited;
  limited.set_memory_bytes(1000);
  JobTablesConfig config = Config(ConsistencyMode::kAsp, limited);
  MemoryRowDisks disks;
  config.disks = &disks;
  JobTables primary = MakeTables(config), replica = MakeTables(config);
  Records records;
  for (int64_t iteration = 0; iteration < 20; ++iteration) {
    Push(primary, config, iteration, false, records);
  }
  const size_t last = records.all.size() - 1;
  for (size_t i = 0; i < last; ++i) REQUIRE_OK(replica.Replay(kBucket, records.all[i]));
  disks.read_error = GENERATE(absl::UnavailableError("no answer"), absl::DataLossError("damaged"));
  CHECK(replica.Replay(kBucket, records.all[last]).code() == absl::StatusCode::kUnavailable);
  CHECK(replica.failure().code() == absl::StatusCode::kUnavailable);
  disks.read_error = absl::OkStatus();
  CHECK_FALSE(replica.Replay(kBucket, records.all[last]).ok());
}

// Some hundred rows, of which an iteration changes a tenth; it makes some, and some leave.
v1::SparseSpec SlowChange() {
  v1::SparseSpec lifetime;
  lifetime.set_admit_after(2);
  lifetime.set_admission_keys(200);
  lifetime.set_evict_after_updates(20);
  lifetime.set_rows_max(300);
  return lifetime;
}

TEST_CASE("Row lifetime: what changed between captures, put together, is the whole bucket",
          "[server]") {
  const auto mode = GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kAsp);
  const JobTablesConfig config = Config(mode, SlowChange());
  JobTables job = MakeTables(config);
  Records unused;
  v1::ShardSnapshot saved;  // The bucket at checkpoint `base`, put together.
  uint64_t base = 0;
  int deltas = 0;
  size_t removed = 0;
  for (int64_t iteration = 0; iteration < 600; ++iteration) {
    Push(job, config, iteration, iteration % 3 == 0, unused);
    if (iteration % 2 == 0) continue;
    const auto id = static_cast<uint64_t>(iteration) + 1;
    const std::string whole = job.Find(kBucket)->Snapshot().value().SerializeAsString();
    v1::ShardSnapshot captured =
        Capture(job, id, base, [&] { Push(job, config, ++iteration, false, unused); });
    if (iteration % 7 == 0) continue;  // Abandoned: the next one has the same base.
    if (captured.has_since()) {
      CHECK(captured.since().checkpoint_id() == base);
      ++deltas;
      removed += captured.since().removed().size() / sizeof(uint64_t);
      CHECK(captured.values().size() <= whole.size() / 2);
      REQUIRE_OK(ApplyRowDelta(std::move(captured), &saved));
    } else {
      saved = std::move(captured);
    }
    REQUIRE((saved.SerializeAsString() == whole));
    base = id;
  }
  CHECK(deltas > 80);
  CHECK(removed > 300);
}

TEST_CASE("Row lifetime: all is captured where what changed is not known, or is most of it",
          "[server]") {
  const JobTablesConfig config = Config(ConsistencyMode::kAsp, SlowChange());
  JobTables job = MakeTables(config);
  Records unused;
  int64_t iteration = 0;
  const auto push = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) Push(job, config, iteration++, false, unused);
  };
  const auto is_delta = [&](uint64_t id, uint64_t base) {
    return Capture(job, id, base).has_since();
  };
  push(50);
  CHECK_FALSE(is_delta(1, 0));
  push(1);
  SECTION("the base is known") { CHECK(is_delta(2, 1)); }
  SECTION("another base") { CHECK_FALSE(is_delta(2, 7)); }
  SECTION("none is wanted, and from then on this one counts") {
    CHECK_FALSE(is_delta(2, 0));
    CHECK_FALSE(is_delta(3, 1));
    CHECK(is_delta(4, 3));
  }
  SECTION("of several that came to nothing only the newest may be the base") {
    CHECK(is_delta(2, 1));
    CHECK(is_delta(3, 1));
    CHECK_FALSE(is_delta(4, 2));
  }
  SECTION("another server was primary in between") {
    job.at(kBucket).ForgetCaptures();
    CHECK_FALSE(is_delta(2, 1));
  }
  SECTION("the shard was made anew") {
    REQUIRE_OK(Install(job, config, {kBucket, {0, 1}}, job.Find(kBucket)->Snapshot().value()));
    CHECK_FALSE(is_delta(2, 1));
  }
  SECTION("most rows have changed") {
    push(20);
    CHECK_FALSE(is_delta(2, 1));
    CHECK(is_delta(3, 2));
  }
  SECTION("more have left than are remembered") {
    push(200);  // Then few rows change, and more than a thousand have left.
    CHECK_FALSE(is_delta(2, 1));
    push(1);
    CHECK(is_delta(3, 2));
  }
}

TEST_CASE("Row lifetime: a snapshot of what changed is no shard", "[server]") {
  const JobTablesConfig config = Config(ConsistencyMode::kAsp, SlowChange());
  JobTables job = MakeTables(config);
  Records unused;
  for (int64_t i = 0; i < 20; ++i) Push(job, config, i, false, unused);
  Capture(job, 1, 0);
  const v1::ShardSnapshot delta = Capture(job, 2, 1);
  REQUIRE(delta.has_since());
  CHECK_STATUS(Install(job, config, {kBucket, {0, 1}}, delta), absl::StatusCode::kDataLoss,
               "a snapshot of what changed since version 40: expected all rows");
}

TEST_CASE("Row lifetime: under BSP an iteration is one push of a key, whoever sends its slots",
          "[server]") {
  v1::SparseSpec lifetime;
  lifetime.set_admit_after(2);
  const JobTablesConfig config = Config(ConsistencyMode::kBsp, lifetime);
  JobTables one = MakeTables(config), two = MakeTables(config);
  Records unused;
  for (int64_t iteration = 0; iteration < 2; ++iteration) {
    // One worker sends the sum of both slots; of the other two each sends one.
    PushHead push{.iteration = Iteration(iteration), .slot_begin = 0, .slot_end = 2};
    push.incarnation = Incarnation(1);
    push.sequence = push.sequence_low_water = Sequence(static_cast<uint64_t>(iteration) + 1);
    const Pushed both({1, 2}, 1.0f), half({1, 2}, 0.5f);
    REQUIRE_OK(one.Push(kBucket, push, both.gradient, unused));
    for (int slot = 0; slot < 2; ++slot) {
      push.rank = Rank(slot);
      push.slot_begin = slot;
      push.slot_end = slot + 1;
      REQUIRE_OK(two.Push(kBucket, push, half.gradient, unused));
    }
    CHECK(CountsOf(two).held() == 2 * iteration);
  }
  const v1::ShardSnapshot a = one.Find(kBucket)->Snapshot().value(),
                          b = two.Find(kBucket)->Snapshot().value();
  CHECK((a.values() == b.values()));
  CHECK((a.bucket().SerializeAsString() == b.bucket().SerializeAsString()));
}

TEST_CASE("Row lifetime: a table with a limit stays within its memory", "[server]") {
  v1::SparseSpec lifetime;
  lifetime.set_rows_max(1000);
  JobTablesConfig config = Config(ConsistencyMode::kAsp, lifetime);
  config.budget = std::make_shared<MemoryBudget>(MemoryBudget::Limits{.one_job = 200'000});
  JobTables job = MakeTables(config);
  Records unused;
  int64_t held = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    std::vector<uint64_t> keys;
    for (uint64_t k = 0; k < 50; ++k) keys.push_back(i * 50 + k);
    const Sequence sequence(i + 1);
    const Pushed pushed(keys, 0.5f);
    REQUIRE_OK(job.Push(kBucket,
                        {.incarnation = Incarnation(1),
                         .iteration = Iteration(static_cast<int64_t>(i)),
                         .sequence = sequence,
                         .sequence_low_water = sequence},
                        pushed.gradient, unused));
    if (i == 30) held = config.budget->held();
  }
  CHECK(CountsOf(job).held() == 1000);
  CHECK(CountsOf(job).evicted_by_limit() == 14'000);
  CHECK(held > 1000 * 8 * kDim);
  CHECK(config.budget->held() <= held * 5 / 4);
}

TEST_CASE("Row lifetime: memory for rows to come is accounted for before it is taken", "[server]") {
  JobTablesConfig config = Config(ConsistencyMode::kAsp, v1::SparseSpec());
  config.budget = std::make_shared<MemoryBudget>(MemoryBudget::Limits{.one_job = 150'000'000});
  REQUIRE_OK_AND_ASSIGN(const auto factory, ShardFactory::Make(config));
  v1::ShardSnapshot announced;
  {
    REQUIRE_OK_AND_ASSIGN(const TableShard made, factory->Initial({kBucket, {0, 1}}));
    REQUIRE_OK_AND_ASSIGN(announced, made.Snapshot());
  }
  announced.set_rows_to_come(10'000'000);
  // 19 bytes for each: once memory was taken it would be less.
  CHECK_STATUS(factory->FromSnapshot({kBucket, {0, 1}}, announced),
               absl::StatusCode::kResourceExhausted, "needs 190000");
  CHECK(config.budget->held() == 0);
  announced.set_rows_to_come(1'000'000);
  REQUIRE_OK_AND_ASSIGN(const TableShard made, factory->FromSnapshot({kBucket, {0, 1}}, announced));
  CHECK(config.budget->held() > 6'000'000);
  CHECK(config.budget->held() < 19'000'000);
}

TEST_CASE("Row lifetime: a limit beyond what a bucket can have is refused by name", "[server]") {
  v1::SparseSpec lifetime;
  lifetime.set_rows_max(1'000'000'000);
  REQUIRE_OK_AND_ASSIGN(const auto factory,
                        ShardFactory::Make(Config(ConsistencyMode::kAsp, lifetime)));
  CHECK_STATUS(factory->Initial({kBucket, {0, 1}}), absl::StatusCode::kInvalidArgument,
               "table 0 shard 0: rows_max allows 1000000000 rows a bucket: expected at most");
}

}  // namespace
}  // namespace capstan::server::row_lifetime_test
