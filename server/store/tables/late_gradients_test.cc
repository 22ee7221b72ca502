// Late gradients in a dense table, against the formula in loops: pulls and pushes in a scripted
// order, copies that get the records, and what it takes of memory.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "server/device/testing/test_shard_device.h"
#include "server/store/state_codec.h"
#include "server/store/tables/job_tables.h"

namespace capstan::server::late_gradients_test {
namespace {

using absl::StatusCode;

constexpr int64_t kElements = 5000;  // More than one block.
constexpr ShardKey kKey{TableId(0), ShardId(0)};
const HeldShard kShard{kKey, {0, kElements}};
constexpr float kRate = 0.1f, kMomentum = 0.5f, kLambda = 0.25f, kClip = 0.4f;

using Numbers = std::vector<float>;

JobTablesConfig Config() {
  JobTablesConfig config;
  v1::TableSpec table;
  table.set_name("parameters");
  table.set_rule(v1::OPTIMIZER);
  table.set_elements(kElements);
  v1::TensorSpec* tensor = table.add_tensors();
  tensor->set_name("w");
  tensor->add_shape(kElements);
  tensor->mutable_initializer()->set_uniform_bound(1.0f);
  config.tables = {table};
  config.optimizer.kind = OptimizerKind::kMomentum;
  config.optimizer.learning_rate = kRate;
  config.optimizer.momentum = kMomentum;
  config.optimizer.clip_value = kClip;
  config.consistency = {
      .mode = ConsistencyMode::kAsp, .rate_by_staleness = true, .delay_compensation = kLambda};
  config.job = "job-1";
  config.device = TestShardDevice();
  return config;
}

class Answers final : public ReplySink {
 public:
  void OnPush(const ShardKey&, const ReplyPush&) override {}
  absl::Status OnPull(const ShardKey&, const ReplyPull& reply, const ShardStore& store) override {
    const std::string bytes(store.Lend(reply.read_from, nullptr, NumberFormat::kFp32).value());
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  void OnRecord(const ShardKey&, const MakeRecord& made, const Gradient& gradient) override {
    records.push_back(EncodeRecord(made.record, gradient));
  }

  Numbers values;
  std::vector<v1::ShardRecord> records;
};

// The same in loops: each operation is one line of server/optimizer/README.md.
struct Reference {
  explicit Reference(const Numbers& initial) : now(initial), velocity(initial.size(), 0.0f) {}

  void Push(const Numbers& gradient, const Numbers& pulled, int64_t updates) {
    for (size_t i = 0; i < now.size(); ++i) {
      float g = gradient[i];
      if (updates > 0) g = g + ((kLambda * g) * g) * (now[i] - pulled[i]);
      g = std::min(std::max(g, -kClip), kClip);
      if (updates > 1) g = g / static_cast<float>(updates);
      velocity[i] = kMomentum * velocity[i] + g;
      now[i] = now[i] - kRate * velocity[i];
    }
  }

  Numbers now, velocity;
};

JobTables MakeTables(const JobTablesConfig& config) {
  REQUIRE_OK_AND_ASSIGN(const auto factory, ShardFactory::Make(config));
  JobTables tables(factory);
  REQUIRE_OK_AND_ASSIGN(TableShard made, factory->Initial(kShard));
  tables.Put(kKey, std::move(made));
  return tables;
}

Numbers Pull(JobTables& tables, int32_t rank, int64_t iteration, Answers& answers) {
  PullHead head;
  head.rank = Rank(rank);
  head.incarnation = Incarnation(1);
  head.iteration = Iteration(iteration);
  REQUIRE_OK(tables.Pull(kKey, head, Instant(), answers));
  return answers.values;
}

absl::Status Push(JobTables& tables, int32_t rank, int64_t iteration, const Numbers& gradient,
                  Answers& answers) {
  PushHead head;
  head.rank = Rank(rank);
  head.incarnation = Incarnation(1);
  head.iteration = Iteration(iteration);
  head.sequence = Sequence(static_cast<uint64_t>(iteration + 1));
  head.sequence_low_water = Sequence(1);
  return tables.Push(kKey, head, Gradient(gradient), answers);
}

Numbers GradientOf(int32_t rank, int64_t iteration) {
  Numbers gradient;
  const uint64_t key = MixKey(static_cast<uint64_t>(rank), static_cast<uint64_t>(iteration));
  for (int64_t i = 0; i < kElements; ++i) {
    gradient.push_back(2.0f * (ToUnitFloat(PhiloxWord(key, static_cast<uint64_t>(i))) - 0.5f));
  }
  return gradient;
}

bool SameBits(const Numbers& a, const Numbers& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Which worker pulls or pushes next. Worker 2 falls behind, worker 0 catches up.
struct Event {
  enum class Kind { kPull, kPush } kind;
  int32_t rank;
};
using enum Event::Kind;
constexpr Event kScript[] = {{kPull, 0}, {kPull, 1}, {kPull, 2}, {kPush, 0}, {kPull, 0},
                             {kPush, 1}, {kPush, 0}, {kPull, 1}, {kPull, 0}, {kPush, 2},
                             {kPush, 1}, {kPull, 2}, {kPush, 2}, {kPush, 0}};

TEST_CASE("Late gradients: a scripted order of pushes has the bits of the formula in loops",
          "[server]") {
  JobTables primary = MakeTables(Config()), replica = MakeTables(Config());
  Answers answers;
  std::optional<Reference> reference;
  struct Worker {
    Numbers pulled;
    int64_t version = 0;
    int64_t iteration = 0;
  } workers[3];
  int64_t version = 0;
  for (const Event& event : kScript) {
    Worker& worker = workers[event.rank];
    if (event.kind == kPull) {
      worker.pulled = Pull(primary, event.rank, worker.iteration, answers);
      worker.version = version;
      if (!reference.has_value()) reference.emplace(worker.pulled);
      REQUIRE(SameBits(worker.pulled, reference->now));
      continue;
    }
    const Numbers gradient = GradientOf(event.rank, worker.iteration);
    REQUIRE_OK(Push(primary, event.rank, worker.iteration, gradient, answers));
    reference->Push(gradient, worker.pulled, version - worker.version);
    ++worker.iteration;
    ++version;
  }
  REQUIRE(SameBits(Pull(primary, 0, workers[0].iteration, answers), reference->now));

  for (const v1::ShardRecord& record : answers.records) REQUIRE_OK(replica.Replay(kKey, record));
  const v1::ShardSnapshot mine = replica.Find(kKey)->Snapshot().value(),
                          other = primary.Find(kKey)->Snapshot().value();
  CHECK(mine.values() == other.values());
  REQUIRE(mine.optimizer_state_size() == 1);
  CHECK(mine.optimizer_state(0) == other.optimizer_state(0));
  CHECK(mine.state().version() == other.state().version());
}

TEST_CASE("Late gradients: values that are kept are counted, and freed with their last gradient",
          "[server]") {
  constexpr int64_t kBytes = kElements * static_cast<int64_t>(sizeof(float));
  JobTablesConfig config = Config();
  // Values, and momentum unless it lies on the device.
  const int64_t own = (config.device == nullptr ? 2 : 1) * kBytes;
  const auto budget =
      std::make_shared<MemoryBudget>(MemoryBudget::Limits{.one_job = own + 2 * kBytes});
  config.budget = budget;
  JobTables tables = MakeTables(config);
  CHECK(budget->HeldBy("job-1") == own);
  const ShardStore& store = tables.Find(kKey)->store();
  Answers answers;
  Pull(tables, 0, 0, answers);
  CHECK(budget->HeldBy("job-1") == own + kBytes);
  CHECK(store.lasting_bytes() == own + kBytes);
  Pull(tables, 1, 0, answers);  // The same version.
  CHECK(store.lasting_bytes() == own + kBytes);
  REQUIRE_OK(Push(tables, 0, 0, GradientOf(0, 0), answers));
  REQUIRE_OK(Push(tables, 1, 0, GradientOf(1, 0), answers));
  CHECK(store.lasting_bytes() == own);

  for (int32_t rank = 0; rank < 2; ++rank) {
    Pull(tables, rank, 1, answers);
    REQUIRE_OK(Push(tables, 2, rank, GradientOf(2, rank), answers));
  }
  CHECK(store.lasting_bytes() == own + 2 * kBytes);
  PullHead head;  // A third version is beyond the job's limit.
  head.rank = Rank(3);
  head.incarnation = Incarnation(1);
  CHECK_STATUS(tables.Pull(kKey, head, Instant(), answers), StatusCode::kResourceExhausted,
               "--job-memory-limit");
}

TEST_CASE("Late gradients: statistics are averaged as they come", "[server]") {
  JobTablesConfig config = Config();
  config.tables[0].set_rule(v1::MOVING_AVERAGE);
  config.tables[0].mutable_tensors(0)->set_momentum(0.5f);
  JobTables tables = MakeTables(config);
  Answers answers;
  Pull(tables, 0, 0, answers);
  const Numbers before = Pull(tables, 1, 0, answers);
  REQUIRE_OK(Push(tables, 0, 0, Numbers(kElements, 8.0f), answers));
  REQUIRE_OK(Push(tables, 1, 0, Numbers(kElements, 4.0f), answers));
  const Numbers after = Pull(tables, 0, 1, answers);
  const float once = before[0] + 0.5f * (8.0f - before[0]);
  CHECK(after[0] == once + 0.5f * (4.0f - once));
}

TEST_CASE("Shard factory: corrections that do not fit the job are refused by name", "[server]") {
  JobTablesConfig config = Config();
  config.optimizer.kind = OptimizerKind::kAdam;
  CHECK_STATUS(ShardFactory::Make(config), StatusCode::kInvalidArgument,
               "rate_by_staleness: expected sgd, momentum or nesterov");
  config.consistency.rate_by_staleness = false;
  REQUIRE_OK(ShardFactory::Make(config));
  config.tables[0].clear_tensors();
  config.tables[0].set_elements(1);
  config.tables[0].mutable_sparse()->set_dim(2);
  config.tables[0].mutable_sparse()->set_buckets(1);
  config.tables[0].mutable_sparse()->mutable_initializer()->set_constant(0.0f);
  CHECK_STATUS(ShardFactory::Make(config), StatusCode::kInvalidArgument,
               "table 0 (parameters) is sparse: expected no rate_by_staleness");
}

}  // namespace
}  // namespace capstan::server::late_gradients_test
