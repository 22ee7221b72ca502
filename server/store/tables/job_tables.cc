#include "server/store/tables/job_tables.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/store/tables/add_counts.h"

namespace capstan::server {
namespace {

// Says which shard an error is of. Pushes and pulls come here: a name is made for errors alone.
absl::Status OfShard(const ShardKey& key, const absl::Status& status) {
  return status.ok() ? status : Annotate(status, NameOf(key));
}

}  // namespace

std::optional<TableShard> JobTables::Put(const ShardKey& key, TableShard shard) {
  const auto it = shards_.find(key);
  if (it != shards_.end()) return std::exchange(it->second, std::move(shard));
  shards_.insert({key, std::move(shard)});
  return std::nullopt;
}

void JobTables::Remove(const ShardKey& key) { shards_.erase(key); }

const TableShard* JobTables::Find(const ShardKey& key) const {
  const auto it = shards_.find(key);
  return it == shards_.end() ? nullptr : &it->second;
}

absl::Status JobTables::CheckPush(const ShardKey& key, const PushHead& push,
                                  const Gradient& gradient) const {
  CAPSTAN_RETURN_IF_ERROR(failure());
  const TableShard& shard = shards_.at(key);
  absl::Status status = shard.CheckRoom(gradient);
  if (status.ok()) status = shard.core().CheckPush(push);
  return OfShard(key, status);
}

absl::Status JobTables::CheckPull(const ShardKey& key, const PullHead& pull) const {
  CAPSTAN_RETURN_IF_ERROR(failure());
  return OfShard(key, shards_.at(key).core().CheckPull(pull));
}

absl::StatusOr<Gradient> JobTables::ParseGradient(const ShardKey& key, const absl::Cord& payload,
                                                  NumberFormat format,
                                                  const RowKeys& listed) const {
  const ShardStore& store = shards_.at(key).store();
  absl::StatusOr<Gradient> gradient = store.Parse(payload, format, listed);
  if (!gradient.ok()) return OfShard(key, gradient.status());
  return gradient;
}

absl::Status JobTables::Push(const ShardKey& key, const PushHead& push, const Gradient& gradient,
                             ReplySink& sink) {
  std::vector<BegunPush> begun;
  CAPSTAN_RETURN_IF_ERROR(BeginPush(key, push, gradient, sink, &begun));
  return FinishPushes(begun, sink);
}

absl::Status JobTables::BeginPush(const ShardKey& key, const PushHead& push,
                                  const Gradient& gradient, ReplySink& sink,
                                  std::vector<BegunPush>* begun) {
  CAPSTAN_RETURN_IF_ERROR(failure());
  TableShard& shard = shards_.at(key);
  Actions actions, later;
  // Others may have taken the room since the whole message was checked.
  CAPSTAN_RETURN_IF_ERROR(OfShard(key, shard.CheckRoom(gradient)));
  CAPSTAN_RETURN_IF_ERROR(OfShard(key, shard.core().Push(push, actions)));
  CAPSTAN_RETURN_IF_ERROR(CarryOut(key, shard, actions, gradient, sink, &later));
  if (shard.store().updating()) begun->push_back({key, std::move(later), gradient});
  return absl::OkStatus();
}

absl::Status JobTables::FinishPushes(const std::vector<BegunPush>& begun, ReplySink& sink) {
  for (const BegunPush& push : begun) {
    TableShard& shard = shards_.at(push.key);
    const absl::Status status = shard.store().Finish();
    if (!status.ok()) Fail(OfShard(push.key, Annotate(status, "applying a push")));
    if (failure().ok()) CarryOut(push.key, shard, push.later, push.gradient, sink).IgnoreError();
  }
  return failure();
}

absl::Status JobTables::Pull(const ShardKey& key, const PullHead& pull, Instant now,
                             ReplySink& sink) {
  CAPSTAN_RETURN_IF_ERROR(failure());
  TableShard& shard = shards_.at(key);
  Actions actions;
  CAPSTAN_RETURN_IF_ERROR(OfShard(key, shard.core().Pull(pull, now, actions)));
  return CarryOut(key, shard, actions, {}, sink);
}

void JobTables::CancelPull(const ShardKey& key, PullToken token) {
  const auto it = shards_.find(key);
  if (it != shards_.end()) it->second.core().CancelPull(token);
}

// Memberships, barriers and deadlines lead to an error only where rows that a pull waits for cannot
// be read; failure() then returns it.

void JobTables::SetMembership(const ShardKey& key, const Membership& membership, ReplySink& sink) {
  TableShard& shard = shards_.at(key);
  Actions actions;
  shard.core().SetMembership(membership, actions);
  CarryOut(key, shard, actions, {}, sink).IgnoreError();
}

void JobTables::MakeBarrier(const ShardKey& key, ReplySink& sink) {
  TableShard& shard = shards_.at(key);
  Actions actions;
  shard.core().MakeBarrier(actions);
  CarryOut(key, shard, actions, {}, sink).IgnoreError();
}

void JobTables::Tick(Instant now, ReplySink& sink) {
  for (auto& [key, shard] : shards_) {
    Actions actions;
    shard.core().Tick(now, actions);
    CarryOut(key, shard, actions, {}, sink).IgnoreError();
  }
}

Instant JobTables::NextDeadline() const {
  Instant next = Instant::InfiniteFuture();
  for (const auto& [key, shard] : shards_) next = std::min(next, shard.core().NextDeadline());
  return next;
}

absl::Status JobTables::Replay(const ShardKey& key, const v1::ShardRecord& record) {
  CAPSTAN_RETURN_IF_ERROR(failure());
  TableShard& shard = shards_.at(key);
  const Position before = shard.core().position();
  const absl::Status status = OfShard(key, shard.Replay(key, record));
  // The record's head was applied and its numbers were not: this copy must never count as one that
  // has the record.
  const bool half_done = !status.ok() && shard.core().position() != before;
  if (half_done || absl::IsResourceExhausted(status)) Fail(status);
  return status;
}

absl::StatusOr<std::optional<uint64_t>> JobTables::ReadPinned(const ShardKey& key,
                                                              const PinnedRead& read,
                                                              v1::ShardSnapshot* piece) {
  const auto it = shards_.find(key);
  if (it == shards_.end()) {
    return absl::AbortedError(absl::StrCat(NameOf(key), " is held here no more"));
  }
  RowStore* const rows = it->second.rows();
  if (rows == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(key), ": a dense shard pins no rows"));
  }
  auto next = rows->ReadPinned(read, piece);
  if (!next.ok()) return OfShard(key, next.status());
  return next;
}

void JobTables::Unpin(const ShardKey& key, PinId pin) {
  const auto it = shards_.find(key);
  if (it != shards_.end() && it->second.rows() != nullptr) it->second.rows()->Unpin(pin);
}

std::vector<v1::HeldTable> JobTables::Describe(
    const std::function<bool(const ShardKey&)>& counts) const {
  std::map<TableId, v1::HeldTable> tables;
  std::map<TableId, int64_t> bytes;
  for (const auto& [key, shard] : shards_) {
    bytes[key.table] += shard.store().bytes();
    if (!counts(key)) continue;
    const int64_t version = shard.core().version().value();
    const auto [it, is_first] = tables.try_emplace(key.table);
    v1::HeldTable& table = it->second;
    if (is_first) {
      table.set_table(key.table.value());
      table.set_name(factory_->NameOfTable(key.table));
      table.set_version_min(version);
      table.set_version_max(version);
    }
    table.set_shards(table.shards() + 1);
    table.set_elements(table.elements() + shard.store().elements());
    table.set_version_min(std::min(table.version_min(), version));
    table.set_version_max(std::max(table.version_max(), version));
    table.set_pushes_applied(table.pushes_applied() + shard.core().pushes_recorded());
    table.set_pushes_duplicate(table.pushes_duplicate() + shard.core().pushes_duplicate());
    table.set_pushes_late(table.pushes_late() + shard.core().pushes_late());
    if (const RowStore* const rows = shard.rows(); rows != nullptr) {
      AddCounts(rows->row_counts(), table.mutable_rows());
      table.set_rows_on_disk(table.rows_on_disk() + rows->rows_on_disk());
    }
  }
  std::vector<v1::HeldTable> described;
  for (auto& [key, table] : tables) {
    table.set_bytes(bytes[key]);
    described.push_back(std::move(table));
  }
  return described;
}

absl::Status JobTables::CarryOut(const ShardKey& key, TableShard& shard, const Actions& actions,
                                 const Gradient& payload, ReplySink& sink, Actions* later) {
  const absl::Status status = shard.CarryOut(key, actions, payload, sink, later);
  if (!status.ok()) Fail(OfShard(key, Annotate(status, "applying a push")));
  return failure();
}

}  // namespace capstan::server
