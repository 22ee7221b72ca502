#include "server/table_store/job_tables.h"

#include <bit>
#include <map>
#include <vector>

#include "common/testing/status_matchers.h"
#include "proto/parameter_server.pb.h"

namespace capstan::server {
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
  config.shards = {{kFirst, {0, 16}}, {kSecond, {16, 40}}, {kStatistics, {0, 40}}};
  return config;
}

class Answers final : public ReplySink {
 public:
  void OnPush(const ShardKey& key, const ReplyPush& reply) override { pushes[key] = reply; }
  void OnPull(const ShardKey& key, const ReplyPull& reply, absl::Span<const float> read) override {
    pulls[key] = reply;
    values[key].assign(read.begin(), read.end());
  }

  std::map<ShardKey, ReplyPush> pushes;
  std::map<ShardKey, ReplyPull> pulls;
  std::map<ShardKey, std::vector<float>> values;
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
  REQUIRE_OK_AND_ASSIGN(auto cut, JobTables::Make(Config()));
  JobTablesConfig whole_config = Config();
  whole_config.shards = {{kFirst, {0, 40}}};
  REQUIRE_OK_AND_ASSIGN(auto whole, JobTables::Make(whole_config));
  std::vector<float> joined = ReadNow(*cut, kFirst);
  for (const float value : ReadNow(*cut, kSecond)) joined.push_back(value);
  CHECK(joined == ReadNow(*whole, kFirst));
  CHECK(joined[0] != joined[1]);
}

TEST_CASE("Job tables: slots are summed and applied, and a waiting pull gets the new values",
          "[server]") {
  REQUIRE_OK_AND_ASSIGN(auto job, JobTables::Make(Config()));
  const std::vector<float> before = ReadNow(*job, kFirst);
  Answers answers;
  const PullHead next{.token = PullToken(1),
                      .rank = Rank(0),
                      .incarnation = Incarnation(1),
                      .iteration = Iteration(1),
                      .deadline = Instant() + absl::Seconds(1)};
  REQUIRE_OK(job->Pull(kFirst, next, Instant(), answers));
  CHECK(answers.pulls.empty());
  CHECK(job->NextDeadline() == next.deadline);
  REQUIRE_OK(job->Push(kFirst, SlotPush(0, 0), std::vector<float>(16, 0.25f), answers));
  REQUIRE_OK(job->Push(kFirst, SlotPush(0, 1), std::vector<float>(16, 0.5f), answers));
  CHECK(answers.pushes.at(kFirst).version == Version(1));
  REQUIRE(answers.pulls.at(kFirst).outcome == PullOutcome::kValues);
  for (size_t i = 0; i < before.size(); ++i) {
    CHECK(answers.values.at(kFirst)[i] == before[i] - 0.75f);
  }
}

TEST_CASE("Job tables: the statistics follow each tensor's own momentum", "[server]") {
  JobTablesConfig config = Config();
  config.consistency = {.mode = ConsistencyMode::kAsp};
  REQUIRE_OK_AND_ASSIGN(auto job, JobTables::Make(config));
  const std::vector<float> before = ReadNow(*job, kStatistics);
  Answers answers;
  PushHead push = SlotPush(0, 0);
  push.slot_end = 0;
  REQUIRE_OK(job->Push(kStatistics, push, std::vector<float>(40, 2.0f), answers));
  const std::vector<float> after = ReadNow(*job, kStatistics);
  for (size_t i = 0; i < 40; ++i) {
    const float momentum = i < 24 ? 0.5f : 0.25f;
    CHECK(after[i] == before[i] + momentum * (2.0f - before[i]));
  }
}

TEST_CASE("Job tables: a pull past its deadline is answered by the tick", "[server]") {
  REQUIRE_OK_AND_ASSIGN(auto job, JobTables::Make(Config()));
  Answers answers;
  const PullHead next{.token = PullToken(1),
                      .rank = Rank(0),
                      .incarnation = Incarnation(1),
                      .iteration = Iteration(1),
                      .deadline = Instant() + absl::Seconds(1)};
  REQUIRE_OK(job->Pull(kFirst, next, Instant(), answers));
  job->Tick(next.deadline, answers);
  CHECK(answers.pulls.at(kFirst).outcome == PullOutcome::kNotReady);
  CHECK(answers.values.at(kFirst).empty());
  CHECK(job->NextDeadline() == Instant::InfiniteFuture());
}

TEST_CASE("Job tables: what is held can be described", "[server]") {
  REQUIRE_OK_AND_ASSIGN(auto job, JobTables::Make(Config()));
  Answers answers;
  REQUIRE_OK(job->Push(kFirst, SlotPush(0, 0), std::vector<float>(16, 0.0f), answers));
  REQUIRE_OK(job->Push(kFirst, SlotPush(0, 0), std::vector<float>(16, 0.0f), answers));
  REQUIRE_OK(job->Push(kFirst, SlotPush(0, 1), std::vector<float>(16, 0.0f), answers));
  const std::vector<v1::HeldTable> tables = job->Describe();
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
  CHECK(job->shards().size() == 3);
}

TEST_CASE("Job tables: assignments that cannot be are refused by name", "[server]") {
  JobTablesConfig config = Config();
  SECTION("an unknown table") {
    config.shards = {{{TableId(5), ShardId(0)}, {0, 4}}};
    CHECK_STATUS(JobTables::Make(config), StatusCode::kInvalidArgument,
                 "table 5 shard 0: no such table");
  }
  SECTION("elements beyond the table") {
    config.shards = {{kSecond, {16, 41}}};
    CHECK_STATUS(JobTables::Make(config), StatusCode::kInvalidArgument,
                 "table 0 shard 1: elements [16, 41): expected a range inside [0, 40)");
  }
  SECTION("a shard given twice") {
    config.shards = {{kFirst, {0, 16}}, {kFirst, {0, 16}}};
    CHECK_STATUS(JobTables::Make(config), StatusCode::kInvalidArgument, "given twice");
  }
  SECTION("slots out of range") {
    config.consistency.slots = 4000;
    CHECK_STATUS(JobTables::Make(config), StatusCode::kInvalidArgument, "slots: 4000");
  }
}

TEST_CASE("Job tables: a shard that is held elsewhere is not found", "[server]") {
  REQUIRE_OK_AND_ASSIGN(auto job, JobTables::Make(Config()));
  REQUIRE_OK_AND_ASSIGN(const int64_t elements, job->ElementsOf(kSecond));
  CHECK(elements == 24);
  CHECK_STATUS(job->ElementsOf({TableId(0), ShardId(9)}), StatusCode::kNotFound,
               "table 0 shard 9 is not held here: this server holds 3 shards of the job");
}

}  // namespace
}  // namespace capstan::server
