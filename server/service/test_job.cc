#include "server/service/test_job.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "common/testing/status_matchers.h"
#include "server/service/codec.h"

namespace capstan::server {

v1::TableSpec TestTable() {
  v1::TableSpec table;
  table.set_name("parameters");
  table.set_rule(v1::OPTIMIZER);
  table.set_elements(24);
  v1::TensorSpec* tensor = table.add_tensors();
  tensor->set_name("fc.weight");
  tensor->add_shape(24);
  tensor->mutable_initializer()->set_constant(0.0f);
  return table;
}

std::shared_ptr<HeldJob> MakeTestJob(const ConsistencyConfig& consistency) {
  JobTablesConfig config;
  config.tables = {TestTable()};
  config.optimizer.learning_rate = 1.0f;
  config.consistency = consistency;
  config.shards = {{{TableId(0), ShardId(0)}, {0, 16}}, {{TableId(0), ShardId(1)}, {16, 24}}};
  REQUIRE_OK_AND_ASSIGN(auto tables, JobTables::Make(config));
  return std::make_shared<HeldJob>("lenet-1", Generation(1), std::move(tables));
}

v1::Caller CallerOf(int32_t rank, uint64_t incarnation) {
  v1::Caller caller;
  caller.set_job_id("lenet-1");
  caller.set_rank(rank);
  caller.set_incarnation(incarnation);
  caller.set_routing_generation(1);
  return caller;
}

v1::PushRequest PushOf(int32_t rank, int64_t iteration, int32_t slot, float gradient,
                       uint64_t sequence) {
  v1::PushRequest request;
  PushHead push{.token = {},
                .rank = Rank(rank),
                .incarnation = Incarnation(1),
                .iteration = Iteration(iteration),
                .sequence = Sequence(sequence),
                .sequence_low_water = Sequence(1)};
  if (slot >= 0) {
    push.slot_begin = slot;
    push.slot_end = slot + 1;
  }
  for (int32_t shard = 0; shard < 2; ++shard) {
    const std::vector<float> values(static_cast<size_t>(kTestShardElements[shard]), gradient);
    EncodePush({TableId(0), ShardId(shard)}, push, values, &request);
  }
  *request.mutable_caller() = CallerOf(rank, 1);
  return request;
}

v1::PullRequest PullOf(int32_t rank, int64_t iteration, int32_t wait_limit_ms) {
  v1::PullRequest request;
  for (int32_t shard = 0; shard < 2; ++shard) {
    EncodePull({TableId(0), ShardId(shard)},
               {.token = {},
                .rank = Rank(rank),
                .incarnation = Incarnation(1),
                .iteration = Iteration(iteration),
                .deadline = {}},
               &request);
  }
  *request.mutable_caller() = CallerOf(rank, 1);
  request.set_wait_limit_ms(wait_limit_ms);
  return request;
}

v1::PullRequest SnapshotOf() {
  v1::PullRequest request = PullOf(0, 0, 0);
  request.mutable_caller()->set_rank(kReaderRank.value());
  request.mutable_caller()->set_incarnation(0);
  request.set_snapshot(true);
  return request;
}

float NumberIn(const v1::PullResponse& response) {
  REQUIRE(response.shards_size() == 2);
  std::vector<float> all;
  for (int32_t shard = 0; shard < 2; ++shard) {
    const std::string& bytes = response.shards(shard).values();
    REQUIRE(response.shards(shard).outcome() == v1::ShardValues::VALUES);
    REQUIRE(bytes.size() == kTestShardElements[shard] * sizeof(float));
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    all.insert(all.end(), values.begin(), values.end());
  }
  for (const float value : all) REQUIRE(value == all.front());
  return all.front();
}

}  // namespace capstan::server
