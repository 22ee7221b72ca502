#include "server/table_store/shard_factory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/planted/planted_bug.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/table_store/state_codec.h"

namespace capstan::server {
namespace {

absl::Status CheckFloats(const char* what, const std::string& bytes, int64_t elements) {
  const int64_t expected = elements * int64_t{sizeof(float)};
  if (static_cast<int64_t>(bytes.size()) == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(what, " of ", bytes.size(), " bytes: expected ", expected));
}

absl::Status CheckSnapshot(const v1::ShardSnapshot& snapshot, int64_t elements, int state_slots) {
  if (snapshot.elements() != elements) {
    return absl::DataLossError(
        absl::StrCat("a snapshot of ", snapshot.elements(), " elements: expected ", elements));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckFloats("values", snapshot.values(), elements));
  if (snapshot.state().previous_readable()) {
    CAPSTAN_RETURN_IF_ERROR(CheckFloats("previous values", snapshot.previous(), elements));
  }
  if (snapshot.optimizer_state_size() != state_slots) {
    return absl::DataLossError(absl::StrCat(snapshot.optimizer_state_size(),
                                            " slots of optimizer state: expected ", state_slots));
  }
  for (const std::string& state : snapshot.optimizer_state()) {
    CAPSTAN_RETURN_IF_ERROR(CheckFloats("optimizer state", state, elements));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ShardFactory>> ShardFactory::Make(JobTablesConfig config) {
  auto factory = std::shared_ptr<ShardFactory>(new ShardFactory(std::move(config)));
  for (const v1::TableSpec& table : factory->config_.tables) {
    CAPSTAN_RETURN_IF_ERROR(ValidateTable(table));
    if (!factory->tables_.insert({TableId(table.table()), table}).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", table.table(), " (", table.name(), ") is given twice"));
    }
  }
  CAPSTAN_RETURN_IF_ERROR(MakePolicy(factory->config_.consistency).status());
  return factory;
}

absl::Status ShardFactory::Check(const HeldShard& shard) const {
  const auto table = tables_.find(shard.key.table);
  if (table == tables_.end()) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(shard.key), ": no such table"));
  }
  const Range& range = shard.elements;
  if (range.begin < 0 || range.end <= range.begin || range.end > table->second.elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(shard.key), ": elements [", range.begin, ", ", range.end,
                     "): expected a range inside [0, ", table->second.elements(), ")"));
  }
  if (range.size() > kShardElementsMax) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(shard.key), ": elements [", range.begin,
                                                   ", ", range.end, "): expected at most ",
                                                   kShardElementsMax));
  }
  return absl::OkStatus();
}

// The rules of a shard's elements: one for the job's optimizer, one a tensor for moving averages.
absl::StatusOr<std::vector<UpdateSegment>> ShardFactory::MakeSegments(
    const HeldShard& shard) const {
  const v1::TableSpec& table = tables_.at(shard.key.table);
  const Range& elements = shard.elements;
  if (table.rule() == v1::OPTIMIZER) {
    return std::vector<UpdateSegment>{
        {.begin = 0, .end = elements.size(), .config = config_.optimizer}};
  }
  if (table.rule() != v1::MOVING_AVERAGE) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table.name(), ": rule ", table.rule(),
                                                   ", expected OPTIMIZER or MOVING_AVERAGE"));
  }
  std::vector<UpdateSegment> segments;
  for (const v1::TensorSpec& tensor : table.tensors()) {
    const int64_t begin = std::max(tensor.offset(), elements.begin);
    const int64_t end = std::min(tensor.offset() + ElementCount(tensor), elements.end);
    if (begin >= end) continue;
    OptimizerConfig rule;
    rule.kind = OptimizerKind::kMovingAverage;
    rule.momentum = tensor.momentum();
    segments.push_back(
        {.begin = begin - elements.begin, .end = end - elements.begin, .config = rule});
  }
  return segments;
}

absl::StatusOr<ShardFactory::Room> ShardFactory::MakeRoom(const HeldShard& shard) const {
  CAPSTAN_RETURN_IF_ERROR(Check(shard));
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<UpdateSegment> segments, MakeSegments(shard));
  absl::StatusOr<ShardStore> store = ShardStore::Make(shard.elements.size(), std::move(segments));
  if (!store.ok()) return Annotate(store.status(), NameOf(shard.key));
  Room room{.store = *std::move(store), .memory = {}};
  if (config_.budget == nullptr) return room;
  auto memory = config_.budget->Reserve(config_.job, shard.key, room.store.bytes());
  if (!memory.ok()) return Annotate(memory.status(), NameOf(shard.key));
  room.memory = *std::move(memory);
  return room;
}

absl::StatusOr<TableShard> ShardFactory::Initial(const HeldShard& shard) const {
  CAPSTAN_ASSIGN_OR_RETURN(Room room, MakeRoom(shard));
  CAPSTAN_ASSIGN_OR_RETURN(ShardCore core, ShardCore::Make(config_.consistency));
  FillInitialValues(tables_.at(shard.key.table), config_.seed, shard.elements.begin,
                    room.store.mutable_values());
  return TableShard(shard.elements, std::move(core), std::move(room.store), std::move(room.memory));
}

absl::StatusOr<TableShard> ShardFactory::FromSnapshot(const HeldShard& shard,
                                                      const v1::ShardSnapshot& snapshot) const {
  CAPSTAN_ASSIGN_OR_RETURN(Room room, MakeRoom(shard));
  CAPSTAN_RETURN_IF_ERROR(Annotate(
      CheckSnapshot(snapshot, shard.elements.size(), room.store.state_slots()), NameOf(shard.key)));
  const auto state = DecodeState(snapshot.state(), snapshot.position());
  if (!state.ok()) {
    return absl::DataLossError(absl::StrCat(NameOf(shard.key), ": ", state.status().message()));
  }
  absl::StatusOr<ShardCore> core = ShardCore::Restore(config_.consistency, *state);
  if (!core.ok()) return Annotate(core.status(), NameOf(shard.key));
  std::vector<float> copy;
  std::vector<absl::Span<const float>> slots;
  std::vector<std::vector<float>> copies(static_cast<size_t>(snapshot.optimizer_state_size()));
  for (int slot = 0; slot < snapshot.optimizer_state_size(); ++slot) {
    slots.push_back(FloatsOf(snapshot.optimizer_state(slot), &copies[static_cast<size_t>(slot)]));
    if (Planted(PlantedBug::kInstallWithoutOptimizerState)) {
      slots.back() = FloatsOf(snapshot.values(), &copy);
    }
  }
  std::vector<float> previous_copy;
  absl::Span<const float> previous;
  if (state->previous_readable) previous = FloatsOf(snapshot.previous(), &previous_copy);
  const absl::Status restored =
      room.store.Restore(FloatsOf(snapshot.values(), &copy), previous, slots);
  if (!restored.ok()) return Annotate(restored, NameOf(shard.key));
  return TableShard(shard.elements, *std::move(core), std::move(room.store),
                    std::move(room.memory));
}

}  // namespace capstan::server
