// A whole shard from a primary and records that follow it, as a replica takes them: made by
// ShardFactory::FromSnapshot, replayed by TableShard::Replay. A shard that was made saves a
// snapshot from which the same shard is made, also after records; a record that is refused changes
// nothing.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/types/consistency_rule.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/core/replication/held_shard.h"
#include "server/store/tables/shard_factory.h"
#include "server/store/tables/table_shard.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

using server::HeldShard;
using server::ShardFactory;
using server::TableShard;

constexpr int64_t kElements = 4;

struct Target {
  std::shared_ptr<const ShardFactory> factory;
  HeldShard shard;
};

Target MakeTarget(ConsistencyMode mode, bool sparse) {
  v1::TableSpec table;
  table.set_name("parameters");
  table.set_rule(v1::OPTIMIZER);
  table.set_elements(sparse ? 1 : kElements);
  if (sparse) {
    table.mutable_sparse()->set_dim(2);
    table.mutable_sparse()->set_buckets(1);
    table.mutable_sparse()->mutable_initializer()->set_constant(0.0f);
    table.mutable_sparse()->set_rows_max(60);
  } else {
    v1::TensorSpec& tensor = *table.add_tensors();
    tensor.set_name("a");
    tensor.add_shape(kElements);
    tensor.mutable_initializer()->set_constant(0.0f);
  }
  server::JobTablesConfig config;
  config.tables = {table};
  config.optimizer.kind = server::OptimizerKind::kAdam;
  config.optimizer.learning_rate = 0.1f;
  config.consistency = {.mode = mode, .slots = 2};
  config.job = "job-1";
  absl::StatusOr<std::shared_ptr<const ShardFactory>> factory =
      ShardFactory::Make(std::move(config));
  FUZZ_CHECK(factory.ok());
  return {*std::move(factory), {{TableId(0), ShardId(0)}, {0, table.elements()}}};
}

std::string Saved(const TableShard& shard) {
  const absl::StatusOr<v1::ShardSnapshot> snapshot = shard.Snapshot();
  FUZZ_CHECK(snapshot.ok());
  return snapshot->SerializeAsString();
}

void CheckMakesTheSame(const Target& target, const std::string& saved) {
  v1::ShardSnapshot snapshot;
  FUZZ_CHECK(snapshot.ParseFromString(saved));
  const absl::StatusOr<TableShard> made = target.factory->FromSnapshot(target.shard, snapshot);
  FUZZ_CHECK(made.ok());
  FUZZ_CHECK(Saved(*made) == saved);
}

void Install(const Target& target, const v1::ReplicateRequest& request) {
  absl::StatusOr<TableShard> made = target.factory->FromSnapshot(target.shard, request.install());
  if (!made.ok()) return;
  std::string saved = Saved(*made);
  CheckMakesTheSame(target, saved);
  for (const v1::ShardRecord& record : request.records()) {
    const absl::Status replayed = made->Replay(target.shard.key, record);
    if (absl::IsInvalidArgument(replayed) || absl::IsDataLoss(replayed)) {
      FUZZ_CHECK(Saved(*made) == saved);
    } else if (!replayed.ok()) {
      return;  // The shard is unusable.
    }
    saved = Saved(*made);
  }
  CheckMakesTheSame(target, saved);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::array<Target, 4> targets = {
      MakeTarget(ConsistencyMode::kBsp, false), MakeTarget(ConsistencyMode::kSsp, false),
      MakeTarget(ConsistencyMode::kBsp, true), MakeTarget(ConsistencyMode::kAsp, true)};
  Input input(data, size);
  const Target& target = targets[input.Byte() % targets.size()];
  const absl::string_view bytes = input.Rest();
  v1::ReplicateRequest request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return 0;
  Install(target, request);
  return 0;
}

}  // namespace capstan::fuzz
