#include "server/engine/job/job_captures.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "common/time/clock.h"

namespace capstan::server {
namespace {

constexpr int64_t kCaptureTurnBytes = 16 << 20;  // These take some 20 ms.
constexpr absl::Duration kReadTurn = absl::Milliseconds(20);

}  // namespace

// Reads the pinned rows of a shard piece by piece. It may outlive the job and the shard; then
// reading fails.
class JobCaptures::Rows final : public CapturedRows {
 public:
  Rows(std::weak_ptr<JobCaptures> captures, const ShardKey& key, PinId pin,
       std::optional<int64_t> since, IfDamaged if_damaged)
      : if_damaged_(if_damaged),
        captures_(std::move(captures)),
        key_(key),
        read_{.pin = pin, .since = since, .bytes_max = kPieceBytes, .passes = true} {}
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  ~Rows() override {
    if (const auto captures = captures_.lock()) captures->Unpin(key_, read_.pin);
  }

  absl::StatusOr<std::optional<v1::ShardSnapshot>> Next() override {
    if (pieces_.empty() && !ended_) CAPSTAN_RETURN_IF_ERROR(Read());
    if (pieces_.empty()) return std::nullopt;
    v1::ShardSnapshot piece = std::move(pieces_.front());
    pieces_.pop_front();
    return piece;
  }

  // The same thread will read the rows of `next` when these have ended.
  void Precede(std::weak_ptr<Rows> next) { next_ = std::move(next); }
  // Returns the first of the rows that follow which has not ended; null if there is none.
  std::shared_ptr<Rows> Unended() const {
    std::shared_ptr<Rows> next = next_.lock();
    while (next != nullptr && next->ended_) next = next->next_.lock();
    return next;
  }

  absl::Status ReadPiece(JobTables& tables) {
    v1::ShardSnapshot piece;
    CAPSTAN_ASSIGN_OR_RETURN(const std::optional<uint64_t> next,
                             tables.ReadPinned(key_, read_, &piece));
    pieces_.push_back(std::move(piece));
    read_.place = next.value_or(0);
    ended_ = !next.has_value();
    return absl::OkStatus();
  }
  bool ended() const { return ended_; }
  const ShardKey& key() const { return key_; }

 private:
  absl::Status Read() {
    const auto captures = captures_.lock();
    if (captures == nullptr) return absl::AbortedError("the job is held here no more");
    const absl::Status read = captures->ReadTurn(*this);
    const bool vital = if_damaged_ == IfDamaged::kJobFails;
    // This server cannot give anybody what it cannot read: its copy is lost.
    if (vital && (absl::IsDataLoss(read) || absl::IsUnavailable(read))) {
      captures->fail_(absl::UnavailableError(read.message()));
    }
    return read;
  }

  const IfDamaged if_damaged_;
  const std::weak_ptr<JobCaptures> captures_;
  const ShardKey key_;
  PinnedRead read_;
  std::deque<v1::ShardSnapshot> pieces_;  // They were read and not taken.
  bool ended_ = false;
  std::weak_ptr<Rows> next_;
};

absl::StatusOr<std::vector<CapturedShard>> JobCaptures::Capture(const v1::CheckpointOrder& order) {
  std::vector<ShardKey> keys;
  {
    absl::MutexLock lock(&state_->mutex);
    for (const auto& [key, engine] : state_->engines) keys.push_back(key);
  }
  // Shards are captured one at a time, because large jobs take seconds and the daemon's report to
  // the scheduler must not wait so long. The mutex is not fair: now and then it is left to others.
  std::vector<CapturedShard> captured;
  std::shared_ptr<Rows> before;
  int64_t bytes = 0;
  const auto never = [] { return false; };
  for (const ShardKey& key : keys) {
    absl::MutexLock lock(&state_->mutex);
    if (bytes >= kCaptureTurnBytes) {
      bytes = 0;
      state_->mutex.AwaitWithTimeout(absl::Condition(&never), absl::Milliseconds(1));
    }
    const auto engine = state_->engines.find(key);
    if (engine == state_->engines.end()) continue;
    absl::MutexLock shard_lock(&engine->second->mutex);
    if (!engine->second->link.is_primary()) continue;
    // A failed push may have changed only half of the shard's rows.
    CAPSTAN_RETURN_IF_ERROR(state_->tables.failure());
    const PinId pin{++state_->pins};
    CAPSTAN_ASSIGN_OR_RETURN(v1::ShardSnapshot copy,
                             state_->tables.at(key).Capture(CheckpointId(order.checkpoint_id()),
                                                            CheckpointId(order.base_id()), pin));
    captured.push_back(CapturedLocked(key, std::move(copy)));
    bytes += captured.back().bytes;  // The capture has looked at all of them.
    const std::shared_ptr<Rows> rows =
        RowsLocked(key, pin, *captured.back().snapshot, IfDamaged::kReaderFails);
    if (rows == nullptr) continue;
    if (before != nullptr) before->Precede(rows);
    captured.back().rows = before = rows;
  }
  return captured;
}

absl::StatusOr<CapturedShard> JobCaptures::CaptureAll(const ShardKey& key) {
  CAPSTAN_RETURN_IF_ERROR(state_->tables.failure());
  const PinId pin{++state_->pins};
  CAPSTAN_ASSIGN_OR_RETURN(v1::ShardSnapshot copy, state_->tables.at(key).CaptureAll(pin));
  CapturedShard captured = CapturedLocked(key, std::move(copy));
  captured.rows = RowsLocked(key, pin, *captured.snapshot, IfDamaged::kJobFails);
  return captured;
}

CapturedShard JobCaptures::CapturedLocked(const ShardKey& key, v1::ShardSnapshot copy) {
  const ShardStore& store = state_->tables.Find(key)->store();
  return {.shard = state_->engines.at(key)->link.shard(),
          .snapshot = std::make_shared<const v1::ShardSnapshot>(std::move(copy)),
          .rows = nullptr,
          .bytes = std::max(store.lasting_bytes(),
                            store.elements() * static_cast<int64_t>(sizeof(float)))};
}

std::shared_ptr<JobCaptures::Rows> JobCaptures::RowsLocked(const ShardKey& key, PinId pin,
                                                           const v1::ShardSnapshot& snapshot,
                                                           IfDamaged if_damaged) {
  if (state_->tables.Find(key)->rows() == nullptr) return nullptr;
  std::optional<int64_t> since;
  if (snapshot.has_since()) since = snapshot.since().version();
  return std::make_shared<Rows>(state_->WeakOf(this), key, pin, since, if_damaged);
}

// A busy shard is free for a reader some twenty times a second. A reader reads for as long as it
// had to wait, within limits: otherwise it would read a large table for many minutes, and the
// server would keep a copy of every row that is written meanwhile.
absl::Status JobCaptures::ReadTurn(Rows& first) {
  const Clock& clock = *state_->options.clock;
  std::shared_ptr<Rows> next;
  const Instant asked = clock.Now();
  std::optional<Instant> until;
  absl::ReaderMutexLock lock(&state_->mutex);
  Rows* rows = &first;
  do {
    const auto engine = state_->engines.find(rows->key());
    const bool is_held = engine != state_->engines.end();
    absl::MutexLockMaybe shard_lock(is_held ? &engine->second->mutex : nullptr);
    if (!until.has_value()) {
      const Instant began = clock.Now();
      until = began + std::min(began - asked, kReadTurn);
    }
    const absl::Status read =
        rows->ReadPiece(state_->tables);  // An error if the shard is held no more.
    // Rows other than the first meet their error again when they are asked for.
    if (!read.ok()) return rows == &first ? read : absl::OkStatus();
    if (!rows->ended()) continue;
    next = rows->Unended();
    rows = next.get();
  } while (rows != nullptr && clock.Now() < *until);
  return absl::OkStatus();
}

// The thread that drops rows may hold a lock of the job, so this does not wait for the mutex.
void JobCaptures::Unpin(const ShardKey& key, PinId pin) {
  if (!state_->mutex.TryLock()) return state_->unread.Add(key, pin);
  state_->tables.Unpin(key, pin);
  state_->mutex.Unlock();
}

}  // namespace capstan::server
