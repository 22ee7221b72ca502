#include "server/engine/testing/request_codec.h"

namespace capstan::server {
namespace {

void EncodeCaller(Rank rank, Incarnation incarnation, v1::Caller* caller) {
  caller->set_rank(rank.value());
  caller->set_incarnation(incarnation.value());
}

}  // namespace

void EncodePush(const ShardKey& key, const PushHead& push, absl::Span<const float> values,
                v1::PushRequest* request) {
  EncodeCaller(push.rank, push.incarnation, request->mutable_caller());
  request->set_iteration(push.iteration.value());
  request->set_slot_begin(push.slot_begin);
  request->set_slot_end(push.slot_end);
  v1::ShardPush* shard = request->add_shards();
  shard->set_table(key.table.value());
  shard->set_shard(key.shard.value());
  shard->set_sequence(push.sequence.value());
  shard->set_sequence_low_water(push.sequence_low_water.value());
  shard->set_value_type(v1::FLOAT32);
  shard->set_values(values.data(), values.size() * sizeof(float));
}

void EncodePull(const ShardKey& key, const PullHead& pull, v1::PullRequest* request) {
  EncodeCaller(pull.rank, pull.incarnation, request->mutable_caller());
  request->set_iteration(pull.iteration.value());
  request->set_snapshot(pull.snapshot);
  v1::ShardPull* shard = request->add_shards();
  shard->set_table(key.table.value());
  shard->set_shard(key.shard.value());
  shard->set_held_version(pull.held_version.value());
}

}  // namespace capstan::server
