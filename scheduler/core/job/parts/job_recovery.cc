#include "scheduler/core/job/parts/job_recovery.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/time/duration_text.h"

namespace capstan::scheduler {
namespace {

constexpr size_t kShardsNamedMax = 8;
constexpr int kBeginningsAtOnce = 5;
constexpr absl::Duration kBeginPauseMax = absl::Seconds(30);

// Returns the pause between a loss and the next beginning of a job that has begun `beginnings`
// times without training. It gives the network, or the cause of the servers' deaths, time to
// recover. It is at most a quarter of `wait`.
absl::Duration BeginPause(int beginnings, absl::Duration wait) {
  if (beginnings < kBeginningsAtOnce) return absl::ZeroDuration();
  const absl::Duration pause = absl::Seconds(1) * std::exp2(beginnings - kBeginningsAtOnce);
  return std::min({pause, kBeginPauseMax, wait / 4});
}

}  // namespace

JobRecovery::JobRecovery(const JobPlan& plan, std::optional<RestoreFrom> begins_at)
    : log_(plan.log),
      wait_(plan.server_wait),
      begins_at_(std::move(begins_at)),
      restore_(begins_at_) {}

void JobRecovery::OnTraining() {
  trained_ = true;
  beginnings_ = 0;
}

bool JobRecovery::CanGoBack(const RestoreFrom* newest, int64_t samples) const {
  return !trained_ || samples == 0 || newest != nullptr;
}

bool JobRecovery::Begin(Instant now) {
  const bool first = !recovery_.has_value();
  recovery_ = Recovery{.since = now, .waiting = true};
  return first;
}

// The order is: first the log, as long as its server may come back; then the checkpoint, or the
// initial values if the job has not trained; then the end of the job.
bool JobRecovery::IsTimeToGoBack(bool found, Instant now) {
  const Instant begin = NextBeginning();
  begin_at_ = !found && now < begin ? begin : Instant::InfiniteFuture();
  return (IsLate(now) || !ReadsLogs()) && now >= begin;
}

bool JobRecovery::IsHopeless(Instant now) const {
  return IsLate(now) || (!ReadsLogs() && !MayBegin() && now >= NextBeginning());
}

bool JobRecovery::GoBackTo(const RestoreFrom* newest, int64_t samples, ShardMap* shards) {
  if (!CanGoBack(newest, samples) || !MayBegin() || !shards->PlaceAnew()) return false;
  ++beginnings_;
  restore_ = newest == nullptr ? std::nullopt : std::make_optional(*newest);
  return true;
}

void JobRecovery::Placed(Instant now) { recovery_ = Recovery{.since = now, .waiting = false}; }

Instant JobRecovery::NextBeginning() const {
  return recovery_->since + BeginPause(beginnings_, wait_);
}

Instant JobRecovery::NextDeadline() const { return std::min(begin_at_, recovery_->since + wait_); }

const RestoreFrom* JobRecovery::Newest(const std::vector<RestoreFrom>& complete) const {
  if (!complete.empty()) return &complete.back();
  return begins_at_ ? &*begins_at_ : nullptr;
}

std::string JobRecovery::DescribeLoss(absl::Span<const ShardMap::Lost> lost) const {
  const NodeId node = lost.empty() ? NodeId() : lost.front().holders.front();
  const auto death = deaths_.find(node);
  return absl::StrCat(node, ", which held shards of the job, is gone: ",
                      death == deaths_.end() ? "" : death->second);
}

std::string JobRecovery::WhyLost(absl::Span<const ShardMap::Lost> lost) const {
  std::string message = DescribeLoss(lost);
  if (!waiting()) return message;  // The job did not wait.
  std::vector<std::string> shards;
  for (const ShardMap::Lost& shard : lost) {
    if (shards.size() == kShardsNamedMax) {
      shards.push_back("...");
      break;
    }
    shards.push_back(absl::StrCat(shard.key.table.value(), "/", shard.key.shard.value()));
  }
  absl::StrAppend(&message, "; no copy of table/shard ", absl::StrJoin(shards, ", "),
                  " is left, and ");
  if (!ReadsLogs() && !MayBegin()) {
    absl::StrAppend(
        &message, "the job has begun ", beginnings_,
        " times from what it could go back to; servers died each time before it trained");
  } else {
    absl::StrAppend(&message, "within ", DurationText(wait_),
                    ReadsLogs() ? " it did not come back with its log"
                                : " there was no server to restore it on");
  }
  return message;
}

std::string JobRecovery::Detail(absl::Span<const ShardMap::Lost> lost, Instant now) const {
  std::set<NodeId> holders;
  for (const ShardMap::Lost& shard : lost) {
    holders.insert(shard.holders.begin(), shard.holders.end());
  }
  return absl::StrCat(lost.size(), " shards are lost: waits for ",
                      ReadsLogs()
                          ? absl::StrCat(absl::StrJoin(holders, ", "), " to come back with the log")
                          : "a server to restore them on",
                      "; ", DurationText(recovery_->since + wait_ - now), " are left");
}

void JobRecovery::Adopt(std::optional<int64_t> batches) {
  if (batches) adopted_ = Adopted{.batches = *batches, .version = Version()};
  trained_ = true;  // The logs may have updates that are later than the record.
}

void JobRecovery::OnVersion(Version version) {
  if (adopted_) adopted_->version = std::max(adopted_->version, version);
}

// A batch counts as part of the model if its push has reached at least one shard.
std::optional<int64_t> JobRecovery::TakeTrainedTwice() {
  if (!adopted_) return std::nullopt;
  const int64_t batches = adopted_->version.value() - adopted_->batches;
  adopted_.reset();
  return batches;
}

void JobRecovery::RestartLimits(Instant now) {
  if (recovery_) recovery_->since = now;
}

}  // namespace capstan::scheduler
