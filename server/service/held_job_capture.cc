// HeldJob: moments of the job that are read while it goes on: checkpoints.
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "server/service/held_job.h"

namespace capstan::server {
namespace {

constexpr int64_t kCaptureTurnBytes = 16 << 20;  // Some 20 ms.

}  // namespace

// Outlives neither the job nor the shard by what it needs of them: then there is nothing to read.
class HeldJob::Rows final : public CapturedRows {
 public:
  Rows(std::weak_ptr<HeldJob> job, const ShardKey& key, PinId pin, std::optional<int64_t> since)
      : job_(std::move(job)),
        key_(key),
        read_{.pin = pin, .since = since, .bytes_max = kPieceBytes, .passes = true} {}
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  ~Rows() override {
    if (const auto job = job_.lock()) job->Unpin(key_, read_.pin);
  }

  absl::StatusOr<std::optional<v1::ShardSnapshot>> Next() override {
    if (ended_) return std::nullopt;
    const auto job = job_.lock();
    if (job == nullptr) return absl::AbortedError("the job is held here no more");
    v1::ShardSnapshot piece;
    CAPSTAN_ASSIGN_OR_RETURN(const std::optional<uint64_t> next,
                             job->ReadPinned(key_, read_, &piece));
    read_.place = next.value_or(0);
    ended_ = !next.has_value();
    return piece;
  }

 private:
  const std::weak_ptr<HeldJob> job_;
  const ShardKey key_;
  PinnedRead read_;
  bool ended_ = false;
};

absl::StatusOr<std::vector<CapturedShard>> HeldJob::Capture(const v1::CheckpointOrder& order) {
  std::vector<ShardKey> keys;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [key, link] : links_) keys.push_back(key);
  }
  // One at a time: large jobs take seconds, and the daemon's report to the scheduler must not wait
  // so long. The mutex is not fair: now and then it is left to others.
  std::vector<CapturedShard> captured;
  int64_t bytes = 0;
  const auto never = [] { return false; };
  for (const ShardKey& key : keys) {
    absl::MutexLock lock(&mutex_);
    if (bytes >= kCaptureTurnBytes) {
      bytes = 0;
      mutex_.AwaitWithTimeout(absl::Condition(&never), absl::Milliseconds(1));
    }
    const auto link = links_.find(key);
    if (link == links_.end() || !link->second->is_primary()) continue;
    const PinId pin{++pins_};
    CAPSTAN_ASSIGN_OR_RETURN(v1::ShardSnapshot copy,
                             tables_.Capture(key, CheckpointId(order.checkpoint_id()),
                                             CheckpointId(order.base_id()), pin));
    const ShardStore& store = tables_.Find(key)->store();
    bytes += store.elements() * int64_t{sizeof(float)};  // All were looked at.
    CapturedShard& shard = captured.emplace_back();
    shard.shard = link->second->shard();
    if (store.pins_rows()) {
      std::optional<int64_t> since;
      if (copy.has_since()) since = copy.since().version();
      shard.rows = std::make_shared<Rows>(weak_from_this(), key, pin, since);
    }
    shard.snapshot = std::make_shared<const v1::ShardSnapshot>(std::move(copy));
  }
  return captured;
}

absl::StatusOr<std::optional<uint64_t>> HeldJob::ReadPinned(const ShardKey& key,
                                                            const PinnedRead& read,
                                                            v1::ShardSnapshot* piece) {
  absl::MutexLock lock(&mutex_);
  return tables_.ReadPinned(key, read, piece);
}

void HeldJob::Unpin(const ShardKey& key, PinId pin) {
  absl::MutexLock lock(&mutex_);
  tables_.Unpin(key, pin);
}

}  // namespace capstan::server
