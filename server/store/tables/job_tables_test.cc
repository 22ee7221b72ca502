#include "server/store/tables/job_tables.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/status/status_macros.h"
#include "common/testing/status_matchers.h"
#include "proto/parameter_server.pb.h"
#include "server/device/testing/test_shard_device.h"
#include "server/store/state_codec.h"

namespace capstan::server::job_tables_test {
namespace {

using absl::StatusCode;

constexpr ShardKey kFirst{TableId(0), ShardId(0)}, kSecond{TableId(0), ShardId(1)};
constexpr ShardKey kStatistics{TableId(1), ShardId(0)};

v1::TensorSpec Tensor(const std::string& name, int64_t offset, int64_t count, float momentum) {
  v1::TensorSpec tensor;
  tensor.set_name(name);
  tensor.add_shape(count);
  tensor.set_offset(offset);
  tensor.mutable_initializer()->set_uniform_bound(1.0f);
  tensor.set_momentum(momentum);
  return tensor;
}

v1::TableSpec Table(int32_t index, const std::string& name, v1::UpdateRule rule) {
  v1::TableSpec table;
  table.set_table(index);
  table.set_name(name);
  table.set_rule(rule);
  const float momentum = rule == v1::MOVING_AVERAGE ? 0.5f : 0.0f;
  *table.add_tensors() = Tensor("a", 0, 24, momentum);
  *table.add_tensors() = Tensor("b", 24, 16, momentum / 2);
  table.set_elements(40);
  return table;
}

// Two tables of 40 elements: parameters in shards [0, 16) and [16, 40), statistics in one.
JobTablesConfig Config() {
  JobTablesConfig config;
  config.tables = {Table(0, "parameters", v1::OPTIMIZER),
                   Table(1, "statistics", v1::MOVING_AVERAGE)};
  config.optimizer.learning_rate = 1.0f;
  config.consistency = {.mode = ConsistencyMode::kBsp, .slots = 2};
  config.seed = 7;
  config.device = TestShardDevice();
  return config;
}

const std::vector<HeldShard> kAll = {
    {kFirst, {0, 16}}, {kSecond, {16, 40}}, {kStatistics, {0, 40}}};

JobTables MakeTables(const JobTablesConfig& config, const std::vector<HeldShard>& shards = kAll) {
  REQUIRE_OK_AND_ASSIGN(const auto factory, ShardFactory::Make(config));
  JobTables tables(factory);
  for (const HeldShard& shard : shards) {
    REQUIRE_OK_AND_ASSIGN(TableShard made, factory->Initial(shard));
    tables.Put(shard.key, std::move(made));
  }
  return tables;
}

absl::Status Install(JobTables& tables, const JobTablesConfig& config, const HeldShard& shard,
                     const v1::ShardSnapshot& snapshot) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto factory, ShardFactory::Make(config));
  CAPSTAN_ASSIGN_OR_RETURN(TableShard made, factory->FromSnapshot(shard, snapshot));
  tables.Put(shard.key, std::move(made));
  return absl::OkStatus();
}

class Answers final : public ReplySink {
 public:
  void OnPush(const ShardKey& key, const ReplyPush& reply) override { pushes[key] = reply; }
  absl::Status OnPull(const ShardKey& key, const ReplyPull& reply,
                      const ShardStore& store) override {
    pulls[key] = reply;
    const std::string bytes(store.Lend(reply.read_from, nullptr, NumberFormat::kFp32).value());
    values[key].resize(bytes.size() / sizeof(float));
    if (!bytes.empty()) std::memcpy(values[key].data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  void OnRecord(const ShardKey& key, const MakeRecord& made, const Gradient& gradient) override {
    records[key].push_back(EncodeRecord(made.record, gradient));
  }

  std::map<ShardKey, ReplyPush> pushes;
  std::map<ShardKey, ReplyPull> pulls;
  std::map<ShardKey, std::vector<float>> values;
  std::map<ShardKey, std::vector<v1::ShardRecord>> records;
};

PushHead SlotPush(int64_t iteration, int32_t slot) {
  PushHead head;
  head.incarnation = Incarnation(1);
  head.iteration = Iteration(iteration);
  head.slot_begin = slot;
  head.slot_end = slot + 1;
  head.sequence = Sequence(1);
  return head;
}

std::vector<float> ReadNow(JobTables& job, const ShardKey& key) {
  Answers answers;
  PullHead head{.token = PullToken(99), .rank = kReaderRank, .snapshot = true};
  REQUIRE_OK(job.Pull(key, head, Instant(), answers));
  return answers.values.at(key);
}

TEST_CASE("Job tables: initial values do not depend on how a table is cut", "[server]") {
  JobTables cut = MakeTables(Config());
  JobTables whole = MakeTables(Config(), {{kFirst, {0, 40}}});
  std::vector<float> joined = ReadNow(cut, kFirst);
  for (const float value : ReadNow(cut, kSecond)) joined.push_back(value);
  CHECK(joined == ReadNow(whole, kFirst));
  CHECK(joined[0] != joined[1]);
}

TEST_CASE("Job tables: a shard that cuts a tensor is refused if the rule takes its norm",
          "[server]") {
  JobTablesConfig config = Config();
  config.optimizer.kind = OptimizerKind::kLamb;
  REQUIRE_OK_AND_ASSIGN(const auto factory, ShardFactory::Make(config));
  CHECK_STATUS(factory->Initial({kFirst, {0, 16}}).status(), StatusCode::kInvalidArgument,
               "elements [0, 16) cut a: expected whole tensors");
  REQUIRE_OK(factory->Initial({kFirst, {0, 24}}).status());
  REQUIRE_OK(factory->Initial({kFirst, {0, 40}}).status());
  REQUIRE_OK(factory->Initial({kStatistics, {0, 16}}).status());  // Averages have no norms.
}

TEST_CASE("Job tables: a table's own optimizer comes before the job's", "[server]") {
  JobTablesConfig config = Config();
  v1::Optimizer& own = *config.tables[0].mutable_optimizer();
  own.mutable_lamb();
  own.set_learning_rate(0.5f);
  REQUIRE_OK_AND_ASSIGN(const auto factory, ShardFactory::Make(config));
  CHECK_STATUS(factory->Initial({kFirst, {0, 16}}).status(), StatusCode::kInvalidArgument,
               "elements [0, 16) cut a: expected whole tensors");
  own.set_learning_rate(0.0f);
  CHECK_STATUS(ShardFactory::Make(config).status(), StatusCode::kInvalidArgument,
               "table 0 (parameters): optimizer.learning_rate: got 0 or nothing");
}

TEST_CASE("Job tables: only a tensor whose norm is taken may be a larger shard", "[server]") {
  JobTablesConfig config = Config();
  constexpr int64_t kElements = 3 << 19;
  config.tables = {Table(0, "parameters", v1::OPTIMIZER)};
  config.tables[0].clear_tensors();
  *config.tables[0].add_tensors() = Tensor("a", 0, kElements, 0);
  config.tables[0].set_elements(kElements);
  const HeldShard shard{kFirst, {0, kElements}};
  REQUIRE_OK_AND_ASSIGN(auto factory, ShardFactory::Make(config));
  CHECK_STATUS(factory->Check(shard), StatusCode::kInvalidArgument, "expected at most 1048576");
  config.optimizer.kind = OptimizerKind::kLars;
  REQUIRE_OK_AND_ASSIGN(factory, ShardFactory::Make(config));
  REQUIRE_OK(factory->Check(shard));
}

TEST_CASE("Job tables: slots are summed and applied, and a waiting pull gets the new values",
          "[server]") {
  JobTables job = MakeTables(Config());
  const std::vector<float> before = ReadNow(job, kFirst);
  Answers answers;
  const PullHead next{.token = PullToken(1),
                      .rank = Rank(0),
                      .incarnation = Incarnation(1),
                      .iteration = Iteration(1),
                      .deadline = Instant() + absl::Seconds(1)};
  REQUIRE_OK(job.Pull(kFirst, next, Instant(), answers));
  CHECK(answers.pulls.empty());
  CHECK(job.NextDeadline() == next.deadline);
  REQUIRE_OK(job.Push(kFirst, SlotPush(0, 0), Gradient(std::vector<float>(16, 0.25f)), answers));
  REQUIRE_OK(job.Push(kFirst, SlotPush(0, 1), Gradient(std::vector<float>(16, 0.5f)), answers));
  CHECK(answers.pushes.at(kFirst).version == Version(1));
  REQUIRE(answers.pulls.at(kFirst).outcome == PullOutcome::kValues);
  for (size_t i = 0; i < before.size(); ++i) {
    CHECK(answers.values.at(kFirst)[i] == before[i] - 0.75f);
  }
}

// A device that does nothing before it is waited for: w -= gradient.
class SlowDevice final : public ShardDevice {
 public:
  class Shard final : public DeviceShard {
   public:
    explicit Shard(SlowDevice& device) : device_(device) {}
    absl::Status Write(absl::Span<const float> weights,
                       absl::Span<const absl::Span<const float>>) override {
      weights_.assign(weights.begin(), weights.end());
      return absl::OkStatus();
    }
    absl::Status Update(int64_t, const std::function<void(float*)>& gradient,
                        absl::Span<float> values) override {
      gradient_.resize(weights_.size());
      gradient(gradient_.data());
      values_ = values;
      ++device_.enqueued;
      return absl::OkStatus();
    }
    absl::Status Finish() override {
      --device_.enqueued;
      if (device_.lost) return absl::UnavailableError("fallen off the bus");
      for (size_t i = 0; i < weights_.size(); ++i) weights_[i] -= gradient_[i];
      std::copy(weights_.begin(), weights_.end(), values_.begin());
      return absl::OkStatus();
    }
    void SetLearningRateFactor(double) override {}
    absl::Status ReadState(int, absl::Span<float>) override { return absl::OkStatus(); }

   private:
    SlowDevice& device_;
    std::vector<float> weights_, gradient_;
    absl::Span<float> values_;
  };
  std::string Name() const override { return "slow"; }
  bool Knows(const OptimizerConfig& rule) const override {
    return rule.kind == OptimizerKind::kSgd;
  }
  absl::StatusOr<std::unique_ptr<DeviceShard>> Make(int64_t, const OptimizerConfig&) override {
    return std::make_unique<Shard>(*this);
  }

  int enqueued = 0;  // Updates that nobody has waited for.
  bool lost = false;
};

TEST_CASE("Job tables: a device has all updates of a message before the first is waited for",
          "[server]") {
  SlowDevice device;
  JobTablesConfig config = Config();
  config.device = &device;
  JobTables job = MakeTables(config);
  Answers answers;
  const std::vector<ShardKey> keys = {kFirst, kSecond};
  std::map<ShardKey, std::vector<float>> expected;
  std::vector<JobTables::BegunPush> begun;
  for (const ShardKey& key : keys) {
    expected[key] = ReadNow(job, key);
    for (float& value : expected[key]) value -= 0.75f;
    // One that waits for the values, and one that reads those before them afterwards.
    for (const int64_t iteration : {1, 2}) {
      const PullHead pull{.token = PullToken(static_cast<uint64_t>(iteration)),
                          .rank = Rank(0),
                          .incarnation = Incarnation(1),
                          .iteration = Iteration(iteration),
                          .deadline = Instant() + absl::Seconds(1)};
      REQUIRE_OK(job.Pull(key, pull, Instant(), answers));
    }
    REQUIRE_OK(job.BeginPush(key, SlotPush(0, 0),
                             Gradient(std::vector<float>(expected[key].size(), 0.25f)), answers,
                             &begun));
  }
  CHECK(device.enqueued == 0);  // Sums are the host's.
  for (const ShardKey& key : keys) {
    REQUIRE_OK(job.BeginPush(key, SlotPush(0, 1),
                             Gradient(std::vector<float>(expected[key].size(), 0.5f)), answers,
                             &begun));
  }
  CHECK(device.enqueued == 2);
  CHECK(answers.pulls.empty());
  SECTION("then those who wait get the new values") {
    REQUIRE_OK(job.FinishPushes(begun, answers));
    CHECK(device.enqueued == 0);
    for (const ShardKey& key : keys) {
      CHECK(answers.pushes.at(key).version == Version(1));
      CHECK(answers.pulls.at(key).token == PullToken(1));
      CHECK(answers.values.at(key) == expected.at(key));
      CHECK(ReadNow(job, key) == expected.at(key));
    }
  }
  SECTION("a device that is lost meanwhile answers nobody") {
    device.lost = true;
    CHECK_STATUS(job.FinishPushes(begun, answers), StatusCode::kUnavailable,
                 "table 0 shard 0: applying a push: fallen off the bus");
    CHECK(answers.pulls.empty());
    CHECK(job.failure().code() == StatusCode::kUnavailable);
  }
}

TEST_CASE("Job tables: the statistics follow each tensor's own momentum", "[server]") {
  JobTablesConfig config = Config();
  config.consistency = {.mode = ConsistencyMode::kAsp};
  JobTables job = MakeTables(config);
  const std::vector<float> before = ReadNow(job, kStatistics);
  Answers answers;
  PushHead push = SlotPush(0, 0);
  push.slot_end = 0;
  REQUIRE_OK(job.Push(kStatistics, push, Gradient(std::vector<float>(40, 2.0f)), answers));
  const std::vector<float> after = ReadNow(job, kStatistics);
  for (size_t i = 0; i < 40; ++i) {
    const float momentum = i < 24 ? 0.5f : 0.25f;
    CHECK(after[i] == before[i] + momentum * (2.0f - before[i]));
  }
}

TEST_CASE("Job tables: a pull past its deadline is answered by the tick", "[server]") {
  JobTables job = MakeTables(Config());
  Answers answers;
  const PullHead next{.token = PullToken(1),
                      .rank = Rank(0),
                      .incarnation = Incarnation(1),
                      .iteration = Iteration(1),
                      .deadline = Instant() + absl::Seconds(1)};
  REQUIRE_OK(job.Pull(kFirst, next, Instant(), answers));
  job.Tick(next.deadline, answers);
  CHECK(answers.pulls.at(kFirst).outcome == PullOutcome::kNotReady);
  CHECK(answers.values.at(kFirst).empty());
  CHECK(job.NextDeadline() == Instant::InfiniteFuture());
}

TEST_CASE("Job tables: what is held can be described", "[server]") {
  JobTables job = MakeTables(Config());
  Answers answers;
  REQUIRE_OK(job.Push(kFirst, SlotPush(0, 0), Gradient(std::vector<float>(16, 0.0f)), answers));
  REQUIRE_OK(job.Push(kFirst, SlotPush(0, 0), Gradient(std::vector<float>(16, 0.0f)), answers));
  REQUIRE_OK(job.Push(kFirst, SlotPush(0, 1), Gradient(std::vector<float>(16, 0.0f)), answers));
  const std::vector<v1::HeldTable> tables = job.Describe([](const ShardKey&) { return true; });
  REQUIRE(tables.size() == 2);
  CHECK(tables[0].name() == "parameters");
  CHECK(tables[0].shards() == 2);
  CHECK(tables[0].elements() == 40);
  CHECK(tables[0].bytes() == 40 * 4 + 16 * 4);
  CHECK(tables[0].version_min() == 0);
  CHECK(tables[0].version_max() == 1);
  CHECK(tables[0].pushes_applied() == 2);
  CHECK(tables[0].pushes_duplicate() == 1);
  CHECK(tables[1].name() == "statistics");
}

TEST_CASE("Job tables: what is not counted is described by its bytes only", "[server]") {
  JobTables job = MakeTables(Config());
  const std::vector<v1::HeldTable> tables =
      job.Describe([](const ShardKey& key) { return key == kFirst; });
  REQUIRE(tables.size() == 1);
  CHECK(tables[0].elements() == 16);
  CHECK(tables[0].bytes() == 40 * 4);
}

TEST_CASE("Job tables: a copy that gets the records has the same bytes", "[server]") {
  JobTablesConfig config = Config();
  const auto mode = GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kAsp);
  config.consistency = {.mode = mode, .slots = 2};
  config.optimizer.kind = OptimizerKind::kAdam;
  JobTables primary = MakeTables(config), replica = MakeTables(config, {});
  Answers answers;
  const Member pusher{.rank = Rank(0), .incarnation = Incarnation(1), .active = true};
  primary.SetMembership(kFirst, {.generation = Generation(1), .members = {pusher}}, answers);
  const HeldShard first = kAll[0];
  REQUIRE_OK(Install(replica, config, first, primary.Find(kFirst)->Snapshot().value()));
  answers.records.clear();
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    for (int32_t slot = 0; slot < 2; ++slot) {
      PushHead push = SlotPush(iteration, slot);
      if (mode == ConsistencyMode::kAsp) {
        push.slot_begin = push.slot_end = 0;
        push.sequence = Sequence(static_cast<uint64_t>(2 * iteration + slot + 1));
      }
      const float gradient = 0.1f * static_cast<float>(iteration + slot + 1);
      REQUIRE_OK(primary.Push(kFirst, push, Gradient(std::vector<float>(16, gradient)), answers));
    }
  }
  primary.MakeBarrier(kFirst, answers);
  for (const v1::ShardRecord& record : answers.records.at(kFirst)) {
    REQUIRE_OK(replica.Replay(kFirst, record));
  }
  v1::ShardSnapshot mine = replica.Find(kFirst)->Snapshot().value(),
                    other = primary.Find(kFirst)->Snapshot().value();
  CHECK(other.optimizer_state_size() == 2);
  CHECK(mine.values() == other.values());
  CHECK(mine.previous() == other.previous());
  CHECK(mine.previous().empty() == (mode == ConsistencyMode::kAsp));
  for (int slot = 0; slot < 2; ++slot) {
    CHECK(mine.optimizer_state(slot) == other.optimizer_state(slot));
  }
  CHECK(mine.position() == other.position());
  CHECK(mine.state().version() == other.state().version());
}

TEST_CASE("Job tables: a record that does not fit changes nothing", "[server]") {
  JobTables job = MakeTables(Config());
  const std::vector<float> before = ReadNow(job, kFirst);
  ShardRecord head{.kind = ShardRecord::Kind::kUpdate, .position = Position(1), .membership = {}};
  CHECK_STATUS(job.Replay(kFirst, EncodeRecord(head, Gradient(std::vector<float>(15, 1.0f)))),
               StatusCode::kInvalidArgument,
               "record 1: expected 64 bytes = 16 elements of FLOAT32, got 60");
  head.position = Position(2);
  CHECK_STATUS(job.Replay(kFirst, EncodeRecord(head, Gradient(std::vector<float>(16, 1.0f)))),
               StatusCode::kDataLoss, "record 2: expected 1");
  CHECK(ReadNow(job, kFirst) == before);
  REQUIRE_OK(job.failure());
}

TEST_CASE("Shard factory: shards that cannot be are refused by name", "[server]") {
  JobTablesConfig config = Config();
  REQUIRE_OK_AND_ASSIGN(const auto factory, ShardFactory::Make(config));
  CHECK_STATUS(factory->Initial({{TableId(5), ShardId(0)}, {0, 4}}), StatusCode::kInvalidArgument,
               "table 5 shard 0: no such table");
  CHECK_STATUS(factory->Initial({kSecond, {16, 41}}), StatusCode::kInvalidArgument,
               "table 0 shard 1: elements [16, 41): expected a range inside [0, 40)");
  config.consistency.slots = 4000;
  CHECK_STATUS(ShardFactory::Make(config), StatusCode::kInvalidArgument, "slots: 4000");
  config = Config();
  config.tables.push_back(config.tables.front());
  CHECK_STATUS(ShardFactory::Make(config), StatusCode::kInvalidArgument, "given twice");
}

TEST_CASE("Shard factory: a snapshot that does not fit the shard is refused", "[server]") {
  JobTablesConfig config = Config();
  config.optimizer.kind = OptimizerKind::kMomentum;
  REQUIRE_OK_AND_ASSIGN(const auto factory, ShardFactory::Make(config));
  REQUIRE_OK_AND_ASSIGN(const TableShard shard, factory->Initial(kAll[0]));
  const v1::ShardSnapshot good = shard.Snapshot().value();
  REQUIRE_OK(factory->FromSnapshot(kAll[0], good));
  CHECK_STATUS(factory->FromSnapshot(kAll[1], good), StatusCode::kDataLoss,
               "table 0 shard 1: a snapshot of 16 elements: expected 24");
  v1::ShardSnapshot bad = good;
  bad.mutable_values()->resize(60);
  CHECK_STATUS(factory->FromSnapshot(kAll[0], bad), StatusCode::kDataLoss,
               "values of 60 bytes: expected 64");
  bad = good;
  bad.clear_optimizer_state();
  REQUIRE_OK(factory->FromSnapshot(kAll[0], bad));  // Initial values come without optimizer state.
  bad.mutable_state()->set_version(3);
  CHECK_STATUS(factory->FromSnapshot(kAll[0], bad), StatusCode::kDataLoss,
               "0 slots of optimizer state: expected 1");
  bad = good;
  bad.mutable_state()->set_version(3);
  bad.mutable_state()->set_previous_readable(true);
  CHECK_STATUS(factory->FromSnapshot(kAll[0], bad), StatusCode::kDataLoss,
               "previous values of 0 bytes: expected 64");
  bad = good;
  bad.mutable_state()->add_push_marks()->set_rank(-2);
  CHECK_STATUS(factory->FromSnapshot(kAll[0], bad), StatusCode::kDataLoss, "rank -2");
  bad = good;
  bad.set_position(-1);
  CHECK_STATUS(factory->FromSnapshot(kAll[0], bad), StatusCode::kDataLoss, "position -1");
}

}  // namespace
}  // namespace capstan::server::job_tables_test
