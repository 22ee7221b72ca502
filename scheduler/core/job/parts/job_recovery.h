// JobRecovery: what a job does about shards that no live server holds: it waits for the logs of the
// servers that held them last, goes back to a checkpoint or to its beginning, or fails.
//
//   HELD --Begin: shards are lost--> WAITING --Placed: from logs, or by going back--> RESTORING
//     ^                                 \--IsHopeless--> the job fails                 |    |
//     |-------------------- End: all servers have made their shards -------------------/    |
//   WAITING <------------------------------- Begin: shards are lost again ------------------/
//
// A job whose servers die before it trains goes back at most kBeginningsMax times, with growing
// pauses. ShardMap has the logs and places the shards; ServerWatch, which calls this class, ends
// tasks and all else when the job goes back.
// Pure: no clock; the time comes in. Thread safety: thread-compatible.
// Invariant: a job whose tasks have reported samples goes back only to a checkpoint.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_RECOVERY_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_RECOVERY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/plan/resume_point.h"
#include "scheduler/core/shards/shard_map.h"

namespace capstan::scheduler {

class JobRecovery {
 public:
  // `begins_at`: the job begins there; none: with its initial values.
  JobRecovery(const JobPlan& plan, std::optional<RestoreFrom> begins_at);

  // ---- facts
  void OnServerDied(const NodeId& server, const std::string& why) { deaths_[server] = why; }
  bool HasDied(const NodeId& server) const { return deaths_.contains(server); }
  void OnTraining();  // Work is leased: values may no longer be those of the beginning.

  // ---- lost shards
  bool active() const { return recovery_.has_value(); }
  bool waiting() const { return recovery_ && recovery_->waiting; }
  bool ReadsLogs() const { return log_ && trained_; }
  // `samples`: the number that tasks have reported. If it is 0, beginning anew loses nothing: work
  // that was done but not reported is in a log, if the job has one, which is tried first.
  bool CanGoBack(const RestoreFrom* newest, int64_t samples) const;
  bool Begin(Instant now);  // False: shards were missing already.
  // REQUIRES for these two: waiting(). `found`: all logs are there.
  bool IsTimeToGoBack(bool found, Instant now);
  bool IsHopeless(Instant now) const;
  // Places all shards anew, to be restored from `newest`. False: the job cannot go back, or there
  // are too few servers for now.
  bool GoBackTo(const RestoreFrom* newest, int64_t samples, ShardMap* shards);
  void Placed(Instant now);  // All shards have servers that are to restore them.
  void End() { recovery_.reset(); }
  Instant NextDeadline() const;  // REQUIRES: waiting().

  // The newest checkpoint; null: none. Where the job began counts as one.
  const RestoreFrom* Newest(const std::vector<RestoreFrom>& complete) const;
  const std::optional<RestoreFrom>& begins_at() const { return begins_at_; }
  // Where the job's training begins, or began last.
  const std::optional<RestoreFrom>& restore() const { return restore_; }

  // ---- texts for users
  // Says why the shards are lost for good.
  std::string WhyLost(absl::Span<const ShardMap::Lost> lost) const;
  // REQUIRES: waiting().
  std::string Detail(absl::Span<const ShardMap::Lost> lost, Instant now) const;

  // ---- a job that was another cluster's, until its shards are held again
  // `batches`: those in the record; nullopt: no batch can be trained twice.
  void Adopt(std::optional<int64_t> batches);
  void OnVersion(Version version);            // A server has reported it.
  std::optional<int64_t> TakeTrainedTwice();  // Batches. nullopt: not adopted, or BSP.

  void RestartLimits(Instant now);

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(begins_at_, restore_, recovery_, deaths_, trained_, beginnings_, adopted_);
    CheckLoaded(archive,
                [this] { return CheckRange("beginnings", beginnings_, 0, kBeginningsMax); });
  }

 private:
  static constexpr int kBeginningsMax = 20;  // The most beginnings without any training in between.

  struct Recovery {
    Instant since;
    bool waiting = true;  // No server has been given the lost shards.
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(since, waiting);
    }
  };
  struct Adopted {
    int64_t batches = 0;
    Version version;  // The highest that a server has reported.
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(batches, version);
      CheckLoaded(archive, [this] {
        absl::Status status = CheckCount("batches", batches);
        status.Update(CheckCount("version", version.value()));
        return status;
      });
    }
  };

  bool MayBegin() const { return beginnings_ < kBeginningsMax; }
  Instant NextBeginning() const;  // The job goes back no earlier.
  std::string DescribeLoss(absl::Span<const ShardMap::Lost> lost) const;
  bool IsLate(Instant now) const { return now >= recovery_->since + wait_; }

  const bool log_;
  const absl::Duration wait_;
  std::optional<RestoreFrom> begins_at_;
  std::optional<RestoreFrom> restore_;
  std::optional<Recovery> recovery_;
  Instant begin_at_ = Instant::InfiniteFuture();  // It goes back no earlier. Not durable.
  std::map<NodeId, std::string> deaths_;          // Why servers of the job died last.
  bool trained_ = false;
  int beginnings_ = 0;  // Times that it went back since work was leased last.
  std::optional<Adopted> adopted_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_RECOVERY_H_
