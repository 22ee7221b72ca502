#include "server/engine/testing/job_fixture.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "common/sparse/key_batch.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "server/device/testing/test_shard_device.h"
#include "server/engine/testing/request_codec.h"

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

v1::TableSpec TestSparseTable(int32_t buckets) {
  v1::TableSpec table;
  table.set_table(1);
  table.set_name("rows");
  table.set_rule(v1::OPTIMIZER);
  table.set_elements(buckets);
  table.mutable_sparse()->set_dim(kTestDim);
  table.mutable_sparse()->set_buckets(buckets);
  table.mutable_sparse()->mutable_initializer()->set_constant(0.0f);
  return table;
}

std::shared_ptr<HeldJob> MakeEmptyTestJob(const TestJobOptions& options) {
  static const ManualClock stopped;
  JobTablesConfig config;
  config.tables = {TestTable()};
  if (options.buckets > 0) config.tables.push_back(TestSparseTable(options.buckets));
  if (options.memory_bytes > 0) {
    config.tables.back().mutable_sparse()->set_memory_bytes(options.memory_bytes);
  }
  config.job = "lenet-1";
  config.budget = options.budget;
  config.disks = options.disks;
  config.device = TestShardDevice();
  config.optimizer.kind = options.optimizer;
  config.optimizer.learning_rate = 1.0f;
  config.consistency = options.consistency;
  REQUIRE_OK_AND_ASSIGN(const auto factory, ShardFactory::Make(config));
  return std::make_shared<HeldJob>(
      HeldJob::Options{.job = "lenet-1",
                       .unique_id = options.unique_id,
                       .node = options.node,
                       .incarnation = Incarnation(options.incarnation),
                       .capability_key = options.capability_key,
                       .safe_replies = options.safe_replies,
                       .clock = options.clock != nullptr ? options.clock : &stopped,
                       .transport = options.transport,
                       .log = options.log,
                       .log_snapshot_bytes_max = options.log_snapshot_bytes_max,
                       .snapshots = options.snapshots,
                       .schedule_tick = options.schedule_tick,
                       .on_report = options.on_report},
      factory);
}

v1::RoutingTable TestRouting(uint64_t generation, const NodeId& primary, uint64_t term) {
  v1::RoutingTable routing;
  routing.set_job_id("lenet-1");
  routing.set_generation(generation);
  v1::ServerAddress* server = routing.add_servers();
  server->set_node_id(primary);
  server->set_address(primary);
  server->set_incarnation(1);
  int64_t begin = 0;
  for (int32_t shard = 0; shard < 2; ++shard) {
    v1::ShardRoute* route = routing.add_shards();
    route->set_shard(shard);
    route->set_element_begin(begin);
    route->set_element_end(begin += kTestShardElements[shard]);
    route->set_server(0);
    route->set_term(term);
  }
  return routing;
}

void AddBuckets(v1::RoutingTable* routing, int32_t buckets) {
  const uint64_t term = routing->shards(0).term();
  for (int32_t bucket = 0; bucket < buckets; ++bucket) {
    v1::ShardRoute* route = routing->add_shards();
    route->set_table(1);
    route->set_shard(bucket);
    route->set_element_begin(bucket);
    route->set_element_end(bucket + 1);
    route->set_server(0);
    route->set_term(term);
  }
}

void AddReplica(v1::RoutingTable* routing, const NodeId& node, bool in_sync) {
  v1::ServerAddress* server = routing->add_servers();
  server->set_node_id(node);
  server->set_address(node);
  server->set_incarnation(1);
  for (v1::ShardRoute& route : *routing->mutable_shards()) {
    v1::ShardReplica* replica = route.add_replicas();
    replica->set_server(routing->servers_size() - 1);
    replica->set_in_sync(in_sync);
  }
}

void TakeRouting(HeldJob& job, const v1::RoutingTable& routing, const ShardSources& sources) {
  const bool restored = sources.restore_term != Term(0) || sources.log_term != Term(0);
  REQUIRE_OK_AND_ASSIGN(const std::vector<ShardOrder> orders,
                        job.assignment().MissingShards(routing, sources));
  std::vector<MadeShard> made;
  for (const ShardOrder& order : orders) {
    REQUIRE((restored || order.from == ShardOrder::From::kInitialValues));
    REQUIRE_OK_AND_ASSIGN(TableShard shard, job.factory().Initial(order.shard));
    made.push_back({.order = order, .shard = std::move(shard)});
  }
  job.assignment().SetRouting(routing, std::move(made));
}

std::shared_ptr<HeldJob> MakeTestJob(const TestJobOptions& options) {
  auto job = MakeEmptyTestJob(options);
  v1::RoutingTable routing = TestRouting(1);
  AddBuckets(&routing, options.buckets);
  TakeRouting(*job, routing);
  return job;
}

std::shared_ptr<HeldJob> MakeTestJob(const ConsistencyRule& consistency) {
  TestJobOptions options;
  options.consistency = consistency;
  return MakeTestJob(options);
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

v1::PushRequest RowPushOf(int32_t rank, int32_t buckets, const std::vector<uint64_t>& keys,
                          float gradient, uint64_t sequence) {
  v1::PushRequest request;
  *request.mutable_caller() = CallerOf(rank, 1);
  const KeyBatch batch = MakeKeyBatch(keys, buckets);
  for (int32_t bucket = 0; bucket < buckets; ++bucket) {
    const Range range = batch.InBucket(bucket);
    if (range.size() == 0) continue;
    v1::ShardPush* shard = request.add_shards();
    shard->set_table(1);
    shard->set_shard(bucket);
    shard->set_sequence(sequence);
    shard->set_sequence_low_water(1);
    shard->set_value_type(v1::FLOAT32);
    const std::vector<float> rows(static_cast<size_t>(range.size() * kTestDim), gradient);
    shard->mutable_values()->append(reinterpret_cast<const char*>(batch.keys.data() + range.begin),
                                    static_cast<size_t>(range.size()) * sizeof(uint64_t));
    shard->mutable_values()->append(reinterpret_cast<const char*>(rows.data()),
                                    rows.size() * sizeof(float));
  }
  return request;
}

v1::PullRequest RowPullOf(int32_t rank, int32_t buckets, const std::vector<uint64_t>& keys) {
  v1::PullRequest request;
  *request.mutable_caller() = CallerOf(rank, 1);
  const KeyBatch batch = MakeKeyBatch(keys, buckets);
  for (int32_t bucket = 0; bucket < buckets; ++bucket) {
    const Range range = batch.InBucket(bucket);
    if (range.size() == 0) continue;
    v1::ShardPull* shard = request.add_shards();
    shard->set_table(1);
    shard->set_shard(bucket);
    shard->set_value_type(v1::FLOAT32);
    shard->mutable_keys()->append(reinterpret_cast<const char*>(batch.keys.data() + range.begin),
                                  static_cast<size_t>(range.size()) * sizeof(uint64_t));
  }
  return request;
}

v1::ScanRowsRequest ScanOf(int32_t bucket, uint64_t place, int32_t bytes_max) {
  v1::ScanRowsRequest request;
  *request.mutable_caller() = CallerOf(kReaderRank.value(), 0);
  request.set_table(1);
  request.set_shard(bucket);
  request.set_place(place);
  request.set_bytes_max(bytes_max);
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

float NumberIn(PullAnswer answer) { return NumberIn(Attach(std::move(answer))); }

}  // namespace capstan::server
