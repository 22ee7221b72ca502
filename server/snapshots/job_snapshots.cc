#include "server/snapshots/job_snapshots.h"

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/engine/message_checks.h"

namespace capstan::server {
namespace {

// Whether the error means that the store has lost the rows or has no room for them, not that it
// cannot answer the request.
bool IsLost(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsResourceExhausted(status) ||
         absl::IsUnavailable(status) || absl::IsDataLoss(status);
}

}  // namespace

// Thread safety: thread-safe, because updates of several shards may keep rows at the same time.
class JobSnapshots::Memory final : public KeptRowsAccount {
 public:
  explicit Memory(Account account) : account_(std::move(account)) {}

  absl::Status Resize(int64_t from, int64_t to) override {
    absl::MutexLock lock(&mutex_);
    const int64_t bytes = bytes_ + to - from;
    if (account_) {
      const absl::Status room = account_(bytes);
      if (!room.ok()) refused_.Update(room);
      if (!room.ok() && to > from) return room;
    }
    bytes_ = bytes;
    return absl::OkStatus();
  }
  int64_t bytes() const {
    absl::MutexLock lock(&mutex_);
    return bytes_;
  }
  bool has_refused() const {
    absl::MutexLock lock(&mutex_);
    return !refused_.ok();
  }
  absl::Status TakeRefused() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(refused_, absl::OkStatus());
  }

 private:
  const Account account_;
  mutable absl::Mutex mutex_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);
};

JobSnapshots::JobSnapshots(const SnapshotLeases::Limits& limits, Account account)
    : leases_(limits), memory_(std::make_shared<Memory>(std::move(account))) {}

absl::Status JobSnapshots::Keep(const v1::CheckpointOrder& order,
                                const std::vector<ShardKey>& shards, Instant now, uint64_t* pins,
                                JobTables& tables) {
  Tick(now, tables);
  const CheckpointId id(order.checkpoint_id());
  std::vector<ReaderId> readers;
  for (const uint64_t reader : order.readers()) readers.push_back(ReaderId{reader});
  CAPSTAN_RETURN_IF_ERROR(leases_.Open(id, readers, now));
  Snapshot& snapshot = snapshots_[id];
  absl::Status kept = KeepShards(shards, pins, tables, snapshot);
  if (const absl::Status refused = memory_->TakeRefused(); kept.ok()) kept = refused;
  if (kept.ok()) return kept;
  End(snapshot, kept, tables);
  for (const ReaderId reader : readers) leases_.Close(id, reader);
  Tick(now, tables);
  return kept;
}

absl::Status JobSnapshots::KeepShards(const std::vector<ShardKey>& shards, uint64_t* pins,
                                      JobTables& tables, Snapshot& snapshot) {
  for (const ShardKey& key : shards) {
    const TableShard& shard = *tables.Find(key);
    Kept& kept = snapshot.shards[key];
    kept.version = shard.core().version();
    if (shard.rows() != nullptr) {
      kept.pin = PinId{++*pins};
      tables.at(key).rows()->PinForReaders(kept.pin, memory_);
      continue;
    }
    const int64_t bytes = shard.store().elements() * int64_t{sizeof(float)};
    CAPSTAN_RETURN_IF_ERROR(Annotate(memory_->Resize(0, bytes), NameOf(key)));
    snapshot.lent_bytes += bytes;
    CAPSTAN_ASSIGN_OR_RETURN(kept.values,
                             shard.store().Lend(ReadFrom::kCurrent, nullptr, NumberFormat::kFp32));
  }
  return absl::OkStatus();
}

std::optional<ShardKey> JobSnapshots::ShardOf(const v1::ReadSnapshotRequest& request) {
  switch (request.what_case()) {
    case v1::ReadSnapshotRequest::kRows:
      return KeyOf(request.rows());
    case v1::ReadSnapshotRequest::kBucket:
      return KeyOf(request.bucket());
    case v1::ReadSnapshotRequest::kValues:
      return KeyOf(request.values());
    case v1::ReadSnapshotRequest::WHAT_NOT_SET:
      break;
  }
  return std::nullopt;
}

absl::Status JobSnapshots::Read(const v1::ReadSnapshotRequest& request, Instant now,
                                JobTables& tables, v1::ReadSnapshotResponse* response) {
  Settle(tables);
  Tick(now, tables);
  const CheckpointId id(request.snapshot_id());
  CAPSTAN_RETURN_IF_ERROR(leases_.Renew(id, ReaderId{request.reader()}, now));
  response->set_lease_ms(absl::ToInt64Milliseconds(leases_.lease()));
  Snapshot& snapshot = snapshots_.at(id);
  absl::Status read;
  if (snapshot.ended.ok()) {
    switch (request.what_case()) {
      case v1::ReadSnapshotRequest::kRows:
        read = ReadRows(request.rows(), snapshot, tables, response);
        break;
      case v1::ReadSnapshotRequest::kBucket:
        read = ReadBucket(request.bucket(), snapshot, tables, response);
        break;
      case v1::ReadSnapshotRequest::kValues:
        read = ReadValues(request.values(), snapshot, tables, response);
        break;
      case v1::ReadSnapshotRequest::WHAT_NOT_SET:
        break;
    }
    if (IsLost(read)) End(snapshot, read, tables);
  }
  if (snapshot.ended.ok()) return read;
  return Annotate(snapshot.ended, absl::StrCat("snapshot ", id.value(), " has ended"));
}

namespace {

// Returns what is kept here of the shard that `asked` names; null: nothing.
template <typename Asked, typename Shards>
const auto* Find(const Asked& asked, const Shards& shards) {
  const auto it = shards.find(KeyOf(asked));
  return it == shards.end() ? nullptr : &it->second;
}

template <typename Asked>
absl::Status NotKept(const Asked& asked) {
  return absl::InvalidArgumentError(
      absl::StrCat(NameOf(KeyOf(asked)), " is not in this server's part of the snapshot"));
}

absl::StatusOr<const ShardStore*> StoreOf(const ShardKey& key, const JobTables& tables) {
  const TableShard* const shard = tables.Find(key);
  if (shard != nullptr) return &shard->store();
  return absl::AbortedError(absl::StrCat(NameOf(key), " is held here no more"));
}

absl::Status IsDense(const ShardKey& key) {
  return absl::InvalidArgumentError(
      absl::StrCat(NameOf(key), ": a dense table has no rows by key: expected a sparse one"));
}

}  // namespace

absl::Status JobSnapshots::ReadRows(const v1::SnapshotRows& asked, const Snapshot& snapshot,
                                    const JobTables& tables,
                                    v1::ReadSnapshotResponse* response) const {
  const Kept* const kept = Find(asked, snapshot.shards);
  if (kept == nullptr) return NotKept(asked);
  const ShardKey key = KeyOf(asked);
  CAPSTAN_ASSIGN_OR_RETURN(const ShardStore* const store, StoreOf(key, tables));
  if (store->row_store() == nullptr) return IsDense(key);
  const absl::StatusOr<RowKeys> keys = store->ParseKeys(asked.keys());
  if (!keys.ok()) return Annotate(keys.status(), NameOf(key));
  const int64_t bytes = store->AnswerElements(*keys) * int64_t{sizeof(float)};
  if (bytes > kAnswerBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        NameOf(key), ": asks for ", bytes, " bytes of rows: expected at most ", kAnswerBytesMax));
  }
  absl::StatusOr<RowsThen> rows = store->row_store()->ReadRowsThen(kept->pin, *keys);
  if (!rows.ok()) return Annotate(rows.status(), NameOf(key));
  response->set_version(kept->version.value());
  response->set_found(std::move(rows->found));
  response->set_values(std::move(rows->rows));
  return absl::OkStatus();
}

absl::Status JobSnapshots::ReadBucket(const v1::SnapshotBucket& asked, const Snapshot& snapshot,
                                      const JobTables& tables,
                                      v1::ReadSnapshotResponse* response) const {
  const Kept* const kept = Find(asked, snapshot.shards);
  if (kept == nullptr) return NotKept(asked);
  const ShardKey key = KeyOf(asked);
  if (asked.bytes_max() < 1 || asked.bytes_max() > kAnswerBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(key), ": bytes_max ", asked.bytes_max(),
                                                   ": expected 1 to ", kAnswerBytesMax));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const ShardStore* const store, StoreOf(key, tables));
  const RowStore* const bucket = store->row_store();
  if (bucket == nullptr) return IsDense(key);
  absl::StatusOr<ScannedRows> rows =
      bucket->ScanThen({.pin = kept->pin, .place = asked.place(), .bytes_max = asked.bytes_max()});
  if (!rows.ok()) return Annotate(rows.status(), NameOf(key));
  response->set_version(kept->version.value());
  response->set_values(std::move(rows->rows));
  response->set_end(!rows->next.has_value());
  response->set_next_place(rows->next.value_or(0));
  return absl::OkStatus();
}

absl::Status JobSnapshots::ReadValues(const v1::SnapshotShard& asked, const Snapshot& snapshot,
                                      const JobTables& tables,
                                      v1::ReadSnapshotResponse* response) const {
  const Kept* const kept = Find(asked, snapshot.shards);
  if (kept == nullptr) return NotKept(asked);
  const ShardKey key = KeyOf(asked);
  CAPSTAN_ASSIGN_OR_RETURN(const ShardStore* const store, StoreOf(key, tables));
  if (store->row_store() != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(key), ": a bucket of a sparse table: expected to be asked for rows"));
  }
  response->set_version(kept->version.value());
  response->set_values(std::string(kept->values));
  return absl::OkStatus();
}

void JobSnapshots::Close(const v1::CloseSnapshotRequest& request, Instant now, JobTables& tables) {
  leases_.Close(CheckpointId(request.snapshot_id()), ReaderId{request.reader()});
  Tick(now, tables);
}

void JobSnapshots::ShardGone(const ShardKey& key, JobTables& tables) {
  for (auto& [id, snapshot] : snapshots_) {
    if (!snapshot.shards.contains(key)) continue;
    End(snapshot,
        absl::AbortedError(absl::StrCat(NameOf(key), " has left this server, or was made anew")),
        tables);
  }
}

void JobSnapshots::Tick(Instant now, JobTables& tables) {
  for (const CheckpointId id : leases_.TakeEnded(now)) {
    const auto it = snapshots_.find(id);
    End(it->second, absl::OkStatus(), tables);
    snapshots_.erase(it);
  }
}

bool JobSnapshots::IsFull() const { return memory_->has_refused(); }

void JobSnapshots::Settle(JobTables& tables) {
  const absl::Status refused = memory_->TakeRefused();
  if (refused.ok()) return;
  const absl::Status why = Annotate(refused, "what updates have changed since it was taken");
  for (auto& [id, snapshot] : snapshots_) {
    if (snapshot.ended.ok()) End(snapshot, why, tables);
  }
}

// Frees what is kept for the snapshot.
void JobSnapshots::End(Snapshot& snapshot, const absl::Status& why, JobTables& tables) {
  for (const auto& [key, kept] : snapshot.shards) tables.Unpin(key, kept.pin);
  snapshot.shards.clear();
  memory_->Resize(std::exchange(snapshot.lent_bytes, 0), 0).IgnoreError();  // Less always fits.
  snapshot.ended = why;
}

std::vector<CheckpointId> JobSnapshots::open() const {
  std::vector<CheckpointId> ids;
  for (const auto& [id, snapshot] : snapshots_) {
    if (snapshot.ended.ok()) ids.push_back(id);
  }
  return ids;
}

int64_t JobSnapshots::bytes() const { return memory_->bytes(); }

}  // namespace capstan::server
