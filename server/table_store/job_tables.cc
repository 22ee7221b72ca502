#include "server/table_store/job_tables.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

std::string NameOf(const ShardKey& key) {
  return absl::StrCat("table ", key.table.value(), " shard ", key.shard.value());
}

// The rules of a shard's elements: one for the job's optimizer, one a tensor for moving averages.
absl::StatusOr<std::vector<UpdateSegment>> MakeSegments(const JobTablesConfig& config,
                                                        const v1::TableSpec& table,
                                                        const Range& elements) {
  if (table.rule() == v1::OPTIMIZER) {
    return std::vector<UpdateSegment>{
        {.begin = 0, .end = elements.size(), .config = config.optimizer}};
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

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace

absl::StatusOr<std::unique_ptr<JobTables>> JobTables::Make(const JobTablesConfig& config) {
  auto job = std::unique_ptr<JobTables>(new JobTables);
  absl::btree_map<TableId, const v1::TableSpec*> tables;
  for (const v1::TableSpec& table : config.tables) {
    CAPSTAN_RETURN_IF_ERROR(ValidateTable(table));
    if (!tables.insert({TableId(table.table()), &table}).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", table.table(), " (", table.name(), ") is given twice"));
    }
    job->table_names_[TableId(table.table())] = table.name();
  }
  for (const HeldShard& held : config.shards) {
    const auto table = tables.find(held.key.table);
    if (table == tables.end()) {
      return absl::InvalidArgumentError(absl::StrCat(NameOf(held.key), ": no such table"));
    }
    absl::StatusOr<Shard> shard = MakeShard(config, *table->second, held);
    if (!shard.ok()) return Annotate(shard.status(), NameOf(held.key));
    if (!job->shards_.insert({held.key, *std::move(shard)}).second) {
      return absl::InvalidArgumentError(absl::StrCat(NameOf(held.key), " is given twice"));
    }
  }
  return job;
}

absl::StatusOr<JobTables::Shard> JobTables::MakeShard(const JobTablesConfig& config,
                                                      const v1::TableSpec& table,
                                                      const HeldShard& held) {
  const Range& range = held.elements;
  if (range.begin < 0 || range.end <= range.begin || range.end > table.elements()) {
    return absl::InvalidArgumentError(absl::StrCat("elements [", range.begin, ", ", range.end,
                                                   "): expected a range inside [0, ",
                                                   table.elements(), ")"));
  }
  if (range.size() > kShardElementsMax) {
    return absl::InvalidArgumentError(absl::StrCat("elements [", range.begin, ", ", range.end,
                                                   "): expected at most ", kShardElementsMax));
  }
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<UpdateSegment> segments, MakeSegments(config, table, range));
  CAPSTAN_ASSIGN_OR_RETURN(ShardStore store, ShardStore::Make(range.size(), std::move(segments)));
  CAPSTAN_ASSIGN_OR_RETURN(ShardCore core, ShardCore::Make(config.consistency));
  FillInitialValues(table, config.seed, range.begin, store.mutable_values());
  return Shard{.elements = range, .core = std::move(core), .store = std::move(store)};
}

absl::StatusOr<int64_t> JobTables::ElementsOf(const ShardKey& key) const {
  const auto it = shards_.find(key);
  if (it != shards_.end()) return it->second.elements.size();
  return absl::NotFoundError(absl::StrCat(NameOf(key), " is not held here: this server holds ",
                                          shards_.size(),
                                          " shards of the job; fetch the routing table"));
}

absl::Status JobTables::CheckPush(const ShardKey& key, const PushHead& push) const {
  CAPSTAN_RETURN_IF_ERROR(failure_);
  return Annotate(shards_.at(key).core.CheckPush(push), NameOf(key));
}

absl::Status JobTables::CheckPull(const ShardKey& key, const PullHead& pull) const {
  CAPSTAN_RETURN_IF_ERROR(failure_);
  return Annotate(shards_.at(key).core.CheckPull(pull), NameOf(key));
}

absl::Status JobTables::Push(const ShardKey& key, const PushHead& push,
                             absl::Span<const float> gradient, ReplySink& sink) {
  CAPSTAN_RETURN_IF_ERROR(failure_);
  Shard& shard = shards_.at(key);
  Actions actions;
  CAPSTAN_RETURN_IF_ERROR(Annotate(shard.core.Push(push, actions), NameOf(key)));
  return CarryOut(key, shard, actions, gradient, sink);
}

absl::Status JobTables::Pull(const ShardKey& key, const PullHead& pull, Instant now,
                             ReplySink& sink) {
  CAPSTAN_RETURN_IF_ERROR(failure_);
  Shard& shard = shards_.at(key);
  Actions actions;
  CAPSTAN_RETURN_IF_ERROR(Annotate(shard.core.Pull(pull, now, actions), NameOf(key)));
  return CarryOut(key, shard, actions, {}, sink);
}

void JobTables::CancelPull(const ShardKey& key, PullToken token) {
  shards_.at(key).core.CancelPull(token);
}

void JobTables::SetMembership(const Membership& membership, ReplySink& sink) {
  for (auto& [key, shard] : shards_) {
    Actions actions;
    shard.core.SetMembership(membership, actions);
    CarryOut(key, shard, actions, {}, sink).IgnoreError();  // Only replies: nothing can fail.
  }
}

void JobTables::Tick(Instant now, ReplySink& sink) {
  for (auto& [key, shard] : shards_) {
    Actions actions;
    shard.core.Tick(now, actions);
    CarryOut(key, shard, actions, {}, sink).IgnoreError();  // Only replies: nothing can fail.
  }
}

Instant JobTables::NextDeadline() const {
  Instant next = Instant::InfiniteFuture();
  for (const auto& [key, shard] : shards_) next = std::min(next, shard.core.NextDeadline());
  return next;
}

std::vector<HeldShard> JobTables::shards() const {
  std::vector<HeldShard> shards;
  for (const auto& [key, shard] : shards_) {
    shards.push_back({.key = key, .elements = shard.elements});
  }
  return shards;
}

std::vector<v1::HeldTable> JobTables::Describe() const {
  std::vector<v1::HeldTable> tables;
  for (const auto& [key, shard] : shards_) {
    const int64_t version = shard.core.version().value();
    if (tables.empty() || tables.back().table() != key.table.value()) {
      v1::HeldTable& added = tables.emplace_back();
      added.set_table(key.table.value());
      added.set_name(table_names_.at(key.table));
      added.set_version_min(version);
      added.set_version_max(version);
    }
    v1::HeldTable& table = tables.back();
    table.set_shards(table.shards() + 1);
    table.set_elements(table.elements() + shard.elements.size());
    table.set_bytes(table.bytes() + shard.store.bytes());
    table.set_version_min(std::min(table.version_min(), version));
    table.set_version_max(std::max(table.version_max(), version));
    table.set_pushes_applied(table.pushes_applied() + shard.core.pushes_recorded());
    table.set_pushes_duplicate(table.pushes_duplicate() + shard.core.pushes_duplicate());
  }
  return tables;
}

absl::Status JobTables::CarryOut(const ShardKey& key, Shard& shard, const Actions& actions,
                                 absl::Span<const float> payload, ReplySink& sink) {
  ShardStore& store = shard.store;
  const auto done = absl::OkStatus();
  const Overloaded carry_out{
      [&](const KeepGradient& action) { return store.Keep(action, payload); },
      [&](const AddGradient& action) { return store.Add(action, payload), done; },
      [&](const DropGradient& action) { return store.Drop(action), done; },
      [&](const ReleasePrevious& action) { return store.Release(action), done; },
      [&](const ApplyGradient& action) { return store.Apply(action, payload); },
      [&](const ReplyPush& reply) { return sink.OnPush(key, reply), done; },
      [&](const ReplyPull& reply) {
        return sink.OnPull(key, reply, store.Read(reply.read_from)), done;
      }};
  for (const Action& action : actions) {
    if (absl::Status status = std::visit(carry_out, action); !status.ok()) {
      failure_ = Annotate(status, absl::StrCat(NameOf(key), ": keeping a gradient"));
      return failure_;
    }
  }
  return absl::OkStatus();
}

}  // namespace capstan::server
