// ShardLink: one shard's connection to its replicas and its log: carries the decisions of
// ShardReplication out, keeps records with their gradients while somebody needs them, and holds a
// replica's answers until its log has what they say.
//
//   primary: record --> kept, log --> MessageFor(replica) ... what is no longer needed is dropped
//   replica: install, records --> log --> OnLogged --> answers
//   log:  GOING ON --eight times its bytes in records, a new copy, a new term that it lacks--> DUE
//         DUE (what comes is not logged) --room for one more (Settle)--> begun anew: GOING ON
//
// Thread safety: thread-compatible; a ShardEngine serializes all calls.
#ifndef CAPSTAN_SERVER_ENGINE_SHARD_LINK_H_
#define CAPSTAN_SERVER_ENGINE_SHARD_LINK_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "server/core/messages/messages.h"
#include "server/core/replication/shard_replication.h"
#include "server/engine/record_sink.h"
#include "server/engine/replica_transport.h"
#include "server/engine/waiting_calls.h"
#include "server/store/tables/captured_shard.h"
#include "server/store/tables/shard_factory.h"

namespace capstan::server {

class ShardLink {
 public:
  // The log gets a snapshot once this many bytes of records follow the last one, and eight times
  // its bytes: then it may forget what lies before, and writes at most an eighth more.
  static constexpr int64_t kLogBytesMin = 16 << 20;
  // No snapshot is made while the job's snapshots on their way to the disk have so many bytes: the
  // shards of a table need theirs at about the same time, and each is a copy, or rows kept as they
  // were.
  static constexpr int64_t kLogSnapshotBytesMax = 256 << 20;

  struct Options {
    JobId job;
    NodeId node;                // This server.
    bool safe_replies = false;  // See HeldJob::Options.
    RecordSink* log = nullptr;
    int64_t log_snapshot_bytes_max = kLogSnapshotBytesMax;
    // Bytes of the snapshots on their way to the log from all links of the job. Outlives the links.
    std::atomic<int64_t>* log_bytes = nullptr;
    // Captures all of a shard as it is now. REQUIRES: it is held.
    std::function<absl::StatusOr<CapturedShard>(const ShardKey&)> capture;
  };

  // `number`: different from those of earlier links of the job to this shard.
  ShardLink(const Options* options, HeldShard shard, uint64_t number)
      : options_(options),
        shard_(shard),
        replication_(options->log != nullptr, MessageId(number << 32)) {}
  ShardLink(const ShardLink&) = delete;
  ShardLink& operator=(const ShardLink&) = delete;
  ~ShardLink() { SetLogSnapshot(std::nullopt); }

  const HeldShard& shard() const { return shard_; }
  ShardReplication& replication() { return replication_; }
  const ShardReplication& replication() const { return replication_; }
  bool is_primary() const { return replication_.role() == ShardRole::kPrimary; }
  // Replies wait until what they rest on is committed, since it may be later than now.
  bool holds_replies() const {
    return options_->safe_replies || replication_.primary().keeps_records();
  }
  // Whether the answer to a push that rests on this version waits until that is committed. It does
  // not if only a move of the shard keeps records, and the version is that of the iteration which
  // had partly arrived when the move began: the copy does not count before it has all of that
  // iteration, and the workers that owe the missing slots may wait for this answer.
  bool HoldsPush(Version rests_on) const {
    if (!holds_replies() || rests_on <= replication_.primary().committed_version()) return false;
    return options_->safe_replies || rests_on > filled_from_;
  }

  // Applies a routing table. `servers` are the followers' addresses; `held` is the shard as it is,
  // null if it is still to be filled.
  void SetRole(const RoleRoute& route, std::map<FollowerKey, v1::ServerAddress> servers,
               const TableShard* held, EndedCalls* ended);

  // The shard that is held was made anew: from this server's log, which has it up to `in_log`, or
  // from elsewhere (none).
  void MadeAnew(std::optional<Position> in_log) {
    log_has_ = in_log;
    SetLogSnapshot(std::nullopt);  // Its rows are gone.
  }

  // ---- primary
  void OnRecord(const MakeRecord& made, const Gradient& gradient);
  // The result has no message if the copy failed: see failure().
  ReplicaRequest MessageFor(const ReplicaMessage& message, Generation routing);
  const v1::ServerAddress& AddressOf(const FollowerKey& follower) const {
    return servers_.at(follower);
  }
  // Called after any change: drops records that are no longer needed, and gives the log a snapshot
  // if it is due one. REQUIRES: the shard is held, or the log is not due.
  void Settle();
  bool log_due() const { return log_due_; }
  // The log has begun the term that is held, durably; or there is no log.
  bool log_begun() const {
    return options_->log == nullptr || (!log_due_ && replication_.logged() >= Position(0));
  }
  // The replica states to report, ordered by replica. ReportsChanged returns whether they differ
  // from those at its last call.
  std::vector<v1::ReplicaState> Reports() const;
  bool ReportsChanged();
  // If not OK, the shard could not be copied for a replica or the log, and is unusable.
  const absl::Status& failure() const { return failure_; }

  // ---- replica
  void TookInstall(Term term, EndedCalls* ended);
  void TookRecord(const v1::ShardRecord& record);
  // Answers with what is held, once the log has it. `held` is null if nothing is.
  void Answer(const TableShard* held, v1::ReplicateResponse* response, WaitingCalls::Done done,
              EndedCalls* ended);

  void OnLogged(Term term, Position position, EndedCalls* ended);
  // Ends all answers that wait for the log.
  void Close(const absl::Status& status, EndedCalls* ended);

 private:
  std::vector<ReplicaReport> ReplicaReports() const;  // None FILLED below filled_from_.
  struct WaitingAnswer {
    Position position;
    WaitingCalls::Done done;
  };

  void StartLog(Term term, Position position);  // A new term begins.
  void SetLogDue();
  void BeginLog();
  void AppendLog(std::shared_ptr<const v1::ShardRecord> record);
  bool LogWantsSnapshot() const;
  struct LogSnapshot {
    Term term;
    Position position;
    int64_t bytes = 0;
  };
  void SetLogSnapshot(std::optional<LogSnapshot> snapshot);

  const Options* const options_;  // The job's; outlives the link.
  const HeldShard shard_;
  ShardReplication replication_;
  std::map<FollowerKey, v1::ServerAddress> servers_;
  // Records [oldest_kept, ...] of the replication; shared with messages on their way and the log.
  std::deque<std::shared_ptr<const v1::ShardRecord>> kept_;
  // No follower is reported as filled below this version: pushes that were acknowledged before
  // there was any follower, and are in no record yet, would be lost with the primary.
  Version filled_from_{0};
  std::vector<ReplicaReport> reported_;
  absl::Status failure_;
  // Up to where the log has what is held, or will once it has written what is queued.
  std::optional<Position> log_has_;
  bool log_due_ = false;                     // It gets nothing before a snapshot of what is held.
  std::optional<LogSnapshot> log_snapshot_;  // On its way.
  int64_t log_snapshot_bytes_ = 0;           // Size of this incarnation's last snapshot.
  int64_t log_record_bytes_ = 0;             // Bytes of records since then.
  std::vector<WaitingAnswer> answers_;       // Answers that wait for the log, in the held term.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_SHARD_LINK_H_
