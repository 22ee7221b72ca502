#include "server/store/tables/shard_factory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/types/shard_size.h"
#include "server/optimizer/config/optimizer_from_proto.h"
#include "server/store/row_store.h"
#include "server/store/sparse/sparse_rows_config.h"
#include "server/store/sparse/sparse_store.h"
#include "server/store/state_codec.h"

namespace capstan::server {

namespace {

std::string TitleOf(const v1::TableSpec& table) {
  return absl::StrCat("table ", table.table(), " (", table.name(), ")");
}

// FTRL's state depends on the rate of the last update, which a row that has not been touched for
// long does not know. Layer-wise rules take norms of tensors, and rows are none.
absl::Status CheckSparseRule(const v1::TableSpec& table, const OptimizerConfig& optimizer) {
  const bool constant =
      optimizer.schedule.kind == ScheduleKind::kConstant && optimizer.schedule.warmup_steps == 0;
  const bool schedule_fits = optimizer.kind != OptimizerKind::kFtrl || constant;
  if (!table.has_sparse() || (schedule_fits && !IsLayerWise(optimizer))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      TitleOf(table), ": a sparse table with ",
      schedule_fits ? "lars or lamb: expected a rule that takes no norms over whole tensors"
                    : "ftrl has a schedule: expected a constant rate"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ShardFactory>> ShardFactory::Make(JobTablesConfig config) {
  auto factory = std::shared_ptr<ShardFactory>(new ShardFactory(std::move(config)));
  for (const v1::TableSpec& spec : factory->config_.tables) {
    CAPSTAN_RETURN_IF_ERROR(factory->AddTable(spec));
  }
  CAPSTAN_RETURN_IF_ERROR(factory->CheckDisks());
  CAPSTAN_RETURN_IF_ERROR(MakePolicy(factory->config_.consistency).status());
  return factory;
}

absl::Status ShardFactory::AddTable(const v1::TableSpec& spec) {
  CAPSTAN_RETURN_IF_ERROR(ValidateTable(spec));
  Table table{.spec = spec, .optimizer = config_.optimizer};
  if (spec.has_optimizer()) {
    absl::StatusOr<OptimizerConfig> own = OptimizerFromProto(spec.optimizer(), config_.plugins);
    if (!own.ok()) return Annotate(own.status(), TitleOf(spec));
    table.optimizer = *std::move(own);
  }
  CAPSTAN_RETURN_IF_ERROR(CheckSparseRule(spec, table.optimizer));
  CAPSTAN_RETURN_IF_ERROR(CheckCorrections(table));
  if (tables_.insert({TableId(spec.table()), std::move(table)}).second) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(TitleOf(spec), " is given twice"));
}

absl::Status ShardFactory::CheckCorrections(const Table& table) const {
  const ConsistencyRule& consistency = config_.consistency;
  const OptimizerKind kind = table.optimizer.kind;
  const bool by_gradient = kind == OptimizerKind::kSgd || kind == OptimizerKind::kMomentum ||
                           kind == OptimizerKind::kNesterov;
  if (consistency.rate_by_staleness && !by_gradient) {
    return absl::InvalidArgumentError(
        "rate_by_staleness: expected sgd, momentum or nesterov; other rules divide by the "
        "gradient's size");
  }
  const bool corrects = consistency.rate_by_staleness || consistency.delay_compensation != 0.0f;
  if (!corrects || !table.spec.has_sparse()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      TitleOf(table.spec), " is sparse: expected no rate_by_staleness and no delay_compensation"));
}

// A moving average accepts new values, not gradients, so corrections do not apply to it.
ConsistencyRule ShardFactory::ConsistencyOf(const HeldShard& shard) const {
  ConsistencyRule consistency = config_.consistency;
  if (tables_.at(shard.key.table).spec.rule() == v1::OPTIMIZER) return consistency;
  consistency.rate_by_staleness = false;
  consistency.delay_compensation = 0.0f;
  return consistency;
}

int64_t ShardFactory::TtlSecondsOf(const HeldShard& shard) const {
  return tables_.at(shard.key.table).spec.sparse().ttl_seconds();
}

absl::Status ShardFactory::CheckDisks() const {
  if (config_.disks != nullptr) return absl::OkStatus();
  for (const v1::TableSpec& table : config_.tables) {
    if (table.sparse().memory_bytes() == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(TitleOf(table), " keeps rows on disk beyond ", table.sparse().memory_bytes(),
                     " bytes: expected a server that was started with --data-dir"));
  }
  return absl::OkStatus();
}

bool ShardFactory::MayKeepRowsOnDisk() const {
  return std::any_of(config_.tables.begin(), config_.tables.end(),
                     [](const v1::TableSpec& table) { return table.sparse().memory_bytes() > 0; });
}

absl::Status ShardFactory::Check(const HeldShard& shard) const {
  const auto found = tables_.find(shard.key.table);
  if (found == tables_.end()) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(shard.key), ": no such table"));
  }
  const v1::TableSpec& table = found->second.spec;
  const Range& range = shard.elements;
  if (range.begin < 0 || range.end <= range.begin || range.end > table.elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(shard.key), ": elements [", range.begin, ", ", range.end,
                     "): expected a range inside [0, ", table.elements(), ")"));
  }
  if (table.has_sparse() && (range.size() != 1 || range.begin != shard.key.shard.value())) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(shard.key), ": buckets [", range.begin,
                                                   ", ", range.end, "): expected bucket ",
                                                   shard.key.shard.value(), " alone"));
  }
  const int64_t most =
      HoldsWholeTensors(found->second) ? kWholeTensorElementsMax : kShardElementsMax;
  if (range.size() > most) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(shard.key), ": elements [", range.begin,
                                                   ", ", range.end, "): expected at most ", most));
  }
  return absl::OkStatus();
}

bool ShardFactory::HoldsWholeTensors(const Table& table) {
  return table.spec.rule() == v1::OPTIMIZER && IsLayerWise(table.optimizer);
}

// Makes the rules of a shard's elements: one for the table's optimizer, or one for each tensor of
// moving averages or of a layer-wise rule.
absl::StatusOr<std::vector<UpdateSegment>> ShardFactory::MakeSegments(
    const HeldShard& shard) const {
  const auto& [table, optimizer] = tables_.at(shard.key.table);
  const Range& elements = shard.elements;
  const bool whole = HoldsWholeTensors(tables_.at(shard.key.table));
  if (table.rule() == v1::OPTIMIZER && !whole) {
    return std::vector<UpdateSegment>{{.begin = 0, .end = elements.size(), .config = optimizer}};
  }
  if (!whole && table.rule() != v1::MOVING_AVERAGE) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table.name(), ": rule ", table.rule(),
                                                   ", expected OPTIMIZER or MOVING_AVERAGE"));
  }
  std::vector<UpdateSegment> segments;
  for (const v1::TensorSpec& tensor : table.tensors()) {
    const int64_t begin = std::max(tensor.offset(), elements.begin);
    const int64_t end = std::min(tensor.offset() + ElementCount(tensor), elements.end);
    if (begin >= end) continue;
    if (whole && end - begin < ElementCount(tensor)) {
      return absl::InvalidArgumentError(absl::StrCat(
          NameOf(shard.key), ": elements [", elements.begin, ", ", elements.end, ") cut ",
          tensor.name(), ": expected whole tensors, since the optimizer takes their norms"));
    }
    OptimizerConfig rule = optimizer;
    if (whole) {
      rule.has_trust_ratio = tensor.shape_size() > 1;
    } else {
      rule = {.kind = OptimizerKind::kMovingAverage, .momentum = tensor.momentum()};
    }
    segments.push_back(
        {.begin = begin - elements.begin, .end = end - elements.begin, .config = rule});
  }
  return segments;
}

absl::StatusOr<std::unique_ptr<ShardStore>> ShardFactory::MakeStore(const HeldShard& shard,
                                                                    Contents contents) const {
  const auto& [table, optimizer] = tables_.at(shard.key.table);
  if (table.has_sparse()) {
    return SparseStore::Make(
        SparseRowsConfig(table.sparse(), shard.key.table, config_.seed, optimizer, config_.disks),
        shard.key.shard.value());
  }
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<UpdateSegment> segments, MakeSegments(shard));
  CAPSTAN_ASSIGN_OR_RETURN(
      std::unique_ptr<DenseStore> store,
      DenseStore::Make(shard.elements.size(), std::move(segments), config_.device));
  if (contents == Contents::kInitialValues) {
    CAPSTAN_RETURN_IF_ERROR(store->SetValues([&](absl::Span<float> values) {
      FillInitialValues(table, config_.seed, shard.elements.begin, values);
    }));
  }
  return store;
}

absl::StatusOr<ShardFactory::Room> ShardFactory::MakeRoom(const HeldShard& shard,
                                                          Contents contents) const {
  CAPSTAN_RETURN_IF_ERROR(Check(shard));
  auto store = MakeStore(shard, contents);
  if (!store.ok()) return Annotate(store.status(), NameOf(shard.key));
  Room room{.store = *std::move(store), .memory = {}};
  if (config_.budget == nullptr) return room;
  auto memory = config_.budget->Reserve(config_.job, shard.key, room.store->lasting_bytes());
  if (!memory.ok()) return Annotate(memory.status(), NameOf(shard.key));
  room.memory = *std::move(memory);
  return room;
}

absl::StatusOr<MemoryBudget::Reservation> ShardFactory::OpenAccount(Account of) const {
  if (config_.budget == nullptr) return MemoryBudget::Reservation();
  const ShardKey no_shard{TableId(-1), ShardId(static_cast<int32_t>(of))};
  return config_.budget->Reserve(config_.job, no_shard, 0);
}

absl::StatusOr<TableShard> ShardFactory::Initial(const HeldShard& shard) const {
  CAPSTAN_ASSIGN_OR_RETURN(Room room, MakeRoom(shard, Contents::kInitialValues));
  CAPSTAN_ASSIGN_OR_RETURN(ShardCore core,
                           ShardCore::Make(ConsistencyOf(shard), TtlSecondsOf(shard)));
  return TableShard(shard.elements, std::move(core), std::move(room.store), std::move(room.memory));
}

absl::StatusOr<TableShard> ShardFactory::FromSnapshot(const HeldShard& shard,
                                                      const v1::ShardSnapshot& snapshot) const {
  CAPSTAN_ASSIGN_OR_RETURN(Room room, MakeRoom(shard, Contents::kToBeRestored));
  const auto state = DecodeState(snapshot.state(), snapshot.position());
  if (!state.ok()) {
    return absl::DataLossError(absl::StrCat(NameOf(shard.key), ": ", state.status().message()));
  }
  absl::StatusOr<ShardCore> core =
      ShardCore::Restore(ConsistencyOf(shard), *state, TtlSecondsOf(shard));
  if (!core.ok()) return Annotate(core.status(), NameOf(shard.key));
  // The count of rows to come is the sender's, so what it takes is accounted for first.
  if (const RowStore* rows = room.store->row_store(); rows != nullptr) {
    CAPSTAN_RETURN_IF_ERROR(
        Annotate(room.memory.Grow(room.store->lasting_bytes() + rows->RoomBytesMax(snapshot)),
                 NameOf(shard.key)));
  }
  const absl::Status restored = room.store->Restore(snapshot);
  if (!restored.ok()) return Annotate(restored, NameOf(shard.key));
  CAPSTAN_RETURN_IF_ERROR(
      Annotate(room.memory.Resize(room.store->lasting_bytes()), NameOf(shard.key)));
  return TableShard(shard.elements, *std::move(core), std::move(room.store),
                    std::move(room.memory));
}

}  // namespace capstan::server
