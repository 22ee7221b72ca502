// HeldJob: one job's shards on this server: checks messages, carries them out, keeps the calls that
// wait, and copies every change to replicas and the log. Knows protobuf, not gRPC.
//
// Messages with values (pushes, pulls, scans, records for replicas and their answers) share the
// job's mutex, and lock one shard after another (ShardEngine): messages of several connections run
// at the same time. Whatever concerns the job as a whole (routing, membership, snapshots, whole
// shards, calls that end with an error, time) has the mutex for itself, so that it comes between
// whole messages, and sees every shard at rest.
//
// A message is checked as a whole before any of it touches state. A call that waits holds no
// thread: it is an entry here until the last of its shards is answered and safe, it is cancelled,
// or the job is closed. Callbacks and sends run outside the mutex.
//
//   Push, Pull --> checked --> every shard answered, and what it rests on committed --> done(OK)
//                     |  \                            ^
//                     |   '--> WAITING --push, members, Tick(deadline), a replica's answer---'
//                     |          |---Cancel-----------------> done(kCancelled)
//                     |          |---another primary--------> done(kFailedPrecondition)
//                     |          '---Close------------------> done(the reason)
//                     '--> done(what is wrong)
//
// In a job without replicas and log (`safe_replies` false) nothing is committed later than applied,
// and a push is answered before Push returns.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_SERVICE_HELD_JOB_H_
#define CAPSTAN_SERVER_SERVICE_HELD_JOB_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/time/clock.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "server/core/membership.h"
#include "server/replication/replica_transport.h"
#include "server/service/install_memory.h"
#include "server/service/key_lists.h"
#include "server/service/record_sink.h"
#include "server/service/shard_engine.h"
#include "server/service/shard_link.h"
#include "server/service/unread_pins.h"
#include "server/service/waiting_calls.h"
#include "server/snapshots/job_snapshots.h"
#include "server/table_store/captured_shard.h"
#include "server/table_store/gradient.h"
#include "server/table_store/job_tables.h"
#include "server/table_store/shard_factory.h"
#include "server/table_store/shard_store.h"

namespace capstan::server {

// Where a primary that does not hold its shard takes it from; see v1::TableAssignment.
struct ShardSources {
  Term restore_term;  // 0: none. Its shards are read from the checkpoint even where one is held.
  Term log_term;      // 0: none.
};

// A shard that is to be made before a routing table can be taken in.
struct ShardOrder {
  enum class From { kInitialValues, kCheckpoint, kLog };
  HeldShard shard;
  From from = From::kInitialValues;
  Term term;  // The term in which it is to be primary.
};

struct MadeShard {
  ShardOrder order;
  TableShard shard;
};

// A shard as a server holds it, and the term in which it was made or received.
struct HeldCopy {
  ShardKey shard;
  Term term;
  v1::ShardSnapshot snapshot;
};

class HeldJob : public std::enable_shared_from_this<HeldJob> {
 public:
  // Bytes of values in one answer; of rows in one answer to a scan.
  static constexpr int64_t kAnswerBytesMax = 60 << 20;
  static constexpr int32_t kScanBytesMax = 4 << 20;
  // Keys that pulls from sparse tables name, of all that wait at a time.
  static constexpr int64_t kWaitingKeyBytesMax = 256 << 20;
  // Whole shards on their way to one server's replicas at a time: each is a copy of a dense shard,
  // or rows that are kept as they were until they have left. A slow link delays its own only.
  static constexpr int kInstallsInFlightMax = 4;

  // Called exactly once per call, from any thread, under no lock of this class.
  using Done = std::function<void(const absl::Status&)>;
  using CallId = WaitingCalls::CallId;

  struct Options {
    JobId job;
    NodeId node;  // This server and its life, as routing tables name it.
    Incarnation incarnation;
    // The job asks for replicas or a log: replies wait until what they rest on is committed.
    bool safe_replies = false;
    const Clock* clock = nullptr;           // Outlives the job.
    ReplicaTransport* transport = nullptr;  // Outlives the job. Null: no routing names replicas.
    RecordSink* log = nullptr;              // Outlives the job. Null: the job has no log.
    int64_t log_snapshot_bytes_max = ShardLink::kLogSnapshotBytesMax;
    KeyLists::Limits key_lists;
    SnapshotLeases::Limits snapshots;
    // A Tick is due at that time, earlier than told before. Called under no lock of this class.
    std::function<void(Instant)> schedule_tick;
    // ReplicaStates() or failure() has changed. Called under no lock of this class.
    std::function<void()> on_report;
  };

  // Holds no shard until the first SetRouting. The factory is shared with the agent's maker.
  // Is to be owned by a shared_ptr: answers of replicas may come after the job was dropped.
  HeldJob(Options options, std::shared_ptr<const ShardFactory> factory);

  // ---- data plane. A call fills the answer and calls `done`, now or later; the message is not
  // needed after the call. Values of an answer are lent: the shard's memory lives as long as they
  // do. Returns the id to cancel the call by if it waits.
  // Errors (to `done`):
  //         kInvalidArgument    a field that cannot be; names shard, value and what was expected.
  //         kNotFound           a shard that is not held here.
  //         kFailedPrecondition the caller's routing table is older than this server's, or another
  //                             server is a shard's primary now.
  //         kUnavailable        it is newer: this server has not taken it in yet.
  //         kAborted            the caller's life is fenced off.
  //         kResourceExhausted  too many pushes beyond the low-water mark, or no memory; pulls that
  //                             wait hold too many keys.
  std::optional<CallId> Push(const PushMessage& push, v1::PushResponse* response, Done done);
  std::optional<CallId> Pull(const v1::PullRequest& request, PullAnswer* answer, Done done);
  // Rows of one bucket of a sparse table, as they are now. The errors of a pull; kInvalidArgument
  // also for a dense shard.
  std::optional<CallId> ScanRows(const v1::ScanRowsRequest& request, v1::ScanRowsResponse* response,
                                 Done done);
  void Cancel(CallId call);  // Ends the call with kCancelled; unknown ids are ignored.

  // Records or a whole shard from a primary; answered once what it brings is in the log, if the job
  // has one. Errors (to `done`): kFailedPrecondition  the sender is primary no more.
  //         kUnavailable      the shard has not been given to this server yet.
  //         kInvalidArgument  a record or snapshot that does not fit the shard.
  void Replicate(const v1::ReplicateRequest& request, v1::ReplicateResponse* response, Done done);
  // The same of several messages with records, in order; `done` comes once each has its result.
  // Errors: kInvalidArgument  too many messages, or another job's: none of them is looked at.
  void ReplicateBatch(const v1::ReplicateBatch& batch, v1::ReplicateBatchAnswer* answer, Done done);
  // The same of a whole shard whose rows come later: it is made aside, without the mutex, more is
  // restored to it (TableShard::RestoreMore), and the request takes it. None: it is not wanted; the
  // request then says why. REQUIRES: it has an install. Errors: kInvalidArgument, as above; no
  // memory, or beyond the budget.
  absl::StatusOr<std::optional<TableShard>> BeginInstall(const v1::ReplicateRequest& request) const;
  void Install(const v1::ReplicateRequest& request, std::optional<TableShard> made,
               v1::ReplicateResponse* response, Done done);

  // ---- control
  // Which shards must be made before SetRouting(routing) can be called; none for a table that is
  // not newer. Errors: kInternal  it makes this server primary of a shard that it must hold already
  //         and does not: its values would be invented.
  absl::StatusOr<std::vector<ShardOrder>> MissingShards(const v1::RoutingTable& routing,
                                                        const ShardSources& sources) const;
  // Where all shards of a newer table begin anew from a checkpoint, what is held of the job's
  // earlier course is worth nothing: lets go of it, so that its memory is there for what is made.
  void ForgetForRestore(const v1::RoutingTable& routing, Term restore_term);
  // Takes the whole table in: makes this server primary or replica of what names it, drops the
  // rest, ends calls that wait for a shard whose primary is elsewhere now. Ignored if not newer.
  // REQUIRES: `made` is what MissingShards asked for.
  void SetRouting(const v1::RoutingTable& routing, std::vector<MadeShard> made);
  void SetMembership(const Membership& membership);
  // Until then no other server is made primary of this one's shards. Never goes back.
  void SetReadLease(Instant until);
  void OnLogged(const ShardKey& shard, Term term, Position position);
  void Fail(const absl::Status& status);  // The tables are lost: sets failure(), ends every call.
  // Does what is due; returns when it counts on being called again. (What comes in meanwhile may
  // bring that forward, by options.schedule_tick, or do away with it. It counts on it all the same,
  // and asks for nothing later: so the answer is not to be replaced by NextDeadline.)
  Instant Tick(Instant now);
  Instant NextDeadline() const;
  void Close(const absl::Status& reason);  // Ends every waiting call, and refuses later ones.

  // Every shard that is held here and can be read, as primary or as replica, for those who compare
  // copies.
  std::vector<HeldCopy> Copies() const;
  // All shards whose primary is here, or what of them changed since the order's base: of one
  // moment, as it is called when the job is quiet. Others come in between shards. Dense shards are
  // copied; the rows of buckets stay where they are, and are read later.
  // Errors: a shard cannot be read.
  absl::StatusOr<std::vector<CapturedShard>> Capture(const v1::CheckpointOrder& order);

  // ---- snapshots (held_job_snapshots.cc). Errors: as JobSnapshots's methods.
  // Keeps all shards whose primary is here as they are. To be called when the job is quiet.
  // Errors: kFailedPrecondition  one is not at the version that the order names.
  absl::Status KeepSnapshot(const v1::CheckpointOrder& order);
  // Answers once what is read is committed: a snapshot may have pushes that nobody was told of, of
  // a task that died, and those may be lost with this server.
  std::optional<CallId> ReadSnapshot(const v1::ReadSnapshotRequest& request,
                                     v1::ReadSnapshotResponse* response, Done done);
  void CloseSnapshot(const v1::CloseSnapshotRequest& request);
  std::vector<CheckpointId> Snapshots() const;  // Snapshots that can be read.

  const JobId& job() const { return options_.job; }
  Incarnation incarnation() const { return options_.incarnation; }
  Generation routing_generation() const;
  // The logs of the shards whose primary is here say durably that this life has them. True without
  // a log.
  bool logs_begun() const;
  Generation membership_generation() const;
  Version version_max()
      const;  // Highest version of a shard whose primary is here; 0: there is none.
  v1::RoutingTable routing() const;
  absl::Status failure() const;
  std::vector<HeldShard> shards() const;  // Whose primary is here. Ordered by key.
  std::vector<v1::ReplicaState> ReplicaStates()
      const;  // Their replicas, as TableState reports them.
  std::vector<v1::HeldTable> Describe() const;
  v1::KeyListCounts key_list_counts() const;
  const ShardFactory& factory() const { return *factory_; }
  const std::shared_ptr<InstallMemory>& install_memory() const { return install_memory_; }

 private:
  class Sink;  // held_job_sink.h
  class Rows;  // held_job_capture.cc
  using Engines = absl::btree_map<ShardKey, std::unique_ptr<ShardEngine>>;
  struct Outgoing {  // A message to a replica.
    ShardKey shard;
    ReplicaMessage message;
    v1::ServerAddress to;
    ReplicaRequest request;
  };
  // Work that is done once the mutex is released.
  struct Effects {
    EndedCalls ended;
    std::vector<Outgoing> sends;
    std::optional<Instant> tick;
    bool report = false;
    // What an operation that shares the mutex leaves to one that has it for itself.
    std::optional<std::pair<CallId, absl::Status>> failed;  // Its call is to end so.
    std::vector<ShardKey> deposed;                          // Calls that wait for these, too.
    bool snapshots_full = false;
    std::optional<TableShard> replaced;  // Large ones take their time to go.
  };
  // REQUIRES for these two: the caller holds no lock.
  void Perform(Effects* effects);
  void PerformAlone(Effects* effects) ABSL_LOCKS_EXCLUDED(mutex_);
  // Messages to one server travel together, but for whole shards.
  void Send(const std::vector<Outgoing>& sends);
  void SendTogether(std::vector<Outgoing> sends);

  // ---- held_job.cc: pushes and pulls.
  absl::Status CheckCallerLocked(const v1::Caller& caller) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // What the message brings for each of its shards; the keys that it asks each for. None: it names
  // a list of keys that is not kept.
  absl::StatusOr<std::optional<std::vector<Gradient>>> CheckPushLocked(const PushMessage& push)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::optional<std::vector<RowKeys>>> CheckPullLocked(
      const v1::PullRequest& request) ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // The part of it that changes: who may pull, and where.
  absl::Status CheckPullHeadLocked(const v1::PullRequest& request) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Returns OK if so many keys may wait, and their rows fit in an answer.
  absl::Status CheckPullSizeLocked(const v1::PullRequest& request,
                                   const std::vector<RowKeys>& keys) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // The keys that the shard's part of a pull means, kept if it has named them. None: as above.
  absl::StatusOr<std::optional<RowKeys>> KeysOfLocked(const v1::Caller& caller,
                                                      const v1::ShardPull& shard)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Errors: kNotFound  this server is to hold no copy of it.
  absl::StatusOr<ShardEngine*> EngineLocked(const ShardKey& key) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status NotHeldLocked(const ShardKey& key) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckHeldLocked(const ShardKey& key) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Calls work(i) for each shard of a message under the lock of the shard, if its primary is here.
  // Shards that are free come first, so that messages which come at the same time do not wait for
  // each other at every shard. A shard keeps its lock while a device updates it (updating()), until
  // finish() has waited for all that work() has begun. Stops at the first error, but for finish().
  template <typename Shards, typename Work, typename Finish>
  absl::Status ForEachPrimaryLocked(const Shards& shards, const Work& work,
                                    const Finish& finish) const ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // OK: the shard's primary is here.
  absl::Status CheckPrimary(const ShardEngine& engine) const ABSL_SHARED_LOCKS_REQUIRED(mutex_)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine.mutex);
  // A pull's keys, and what of its rows was read ahead of its turn.
  struct Ahead {
    std::vector<RowKeys> keys;
    std::vector<std::pair<ShardKey, std::unique_ptr<RowFetch>>> fetches;
  };
  // Reads what the pull will need from disk, without the mutex: other calls go on. It decides
  // nothing: what has changed meanwhile, or cannot be read, is left to the pull. None: nothing is
  // on disk, or the pull will be refused.
  std::optional<Ahead> FetchRows(const v1::PullRequest& request);
  // As CheckPullLocked, of a pull that may have been read ahead; takes in what has arrived for it.
  absl::StatusOr<std::optional<std::vector<RowKeys>>> KeysOfPullLocked(
      const v1::PullRequest& request, std::optional<Ahead> ahead)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status PushLocked(const v1::PushRequest& push, const std::vector<Gradient>& gradients,
                          v1::PushResponse* response, Sink& sink)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status PullLocked(const v1::PullRequest& request, const std::vector<RowKeys>& keys,
                          CallId call, PullAnswer* answer, Sink& sink, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status ScanLocked(const v1::ScanRowsRequest& request, CallId call,
                          v1::ScanRowsResponse* response, Sink& sink)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // OK: what changed since then is to be told.
  absl::Status CheckSinceLocked(const v1::ScanSince& since, Version present) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Ends what an operation has begun: the call's id if it waits.
  std::optional<CallId> FinishLocked(CallId call, const absl::Status& status, Sink& sink,
                                     Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void EndLocked(CallId call, const absl::Status& status, Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndWaitingForLocked(const ShardKey& key, const absl::Status& status, Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // ---- held_job_control.cc: routing, membership, time.
  using MadeFrom = absl::btree_map<ShardKey, ShardOrder::From>;
  struct Held {  // The shard as this server holds it.
    bool is_held = false;
    bool is_primary = false;
    Term term;
  };
  Held HeldLocked(const HeldShard& shard) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  std::vector<ShardKey> PrimariesLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  ShardEngine& MakeEngineLocked(const HeldShard& shard, Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetRouteLocked(const v1::RoutingTable& routing, const v1::ShardRoute& route,
                      const MadeFrom& made, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetRole(const v1::RoutingTable& routing, const v1::ShardRoute& route, ShardLink& link,
               Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the next one.
  Engines::iterator RemoveLocked(Engines::iterator engine, Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsSelf(const v1::RoutingTable& routing, int server) const;
  bool MayInstall(const FollowerKey& to) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(installs_mutex_);
  void EndInstall(const FollowerKey& to) ABSL_LOCKS_EXCLUDED(installs_mutex_);
  std::optional<ReplicaMessage> NextMessage(ShardLink& link) ABSL_LOCKS_EXCLUDED(installs_mutex_);
  Instant NextDeadlineOf(const ShardReplication& replication) const
      ABSL_LOCKS_EXCLUDED(installs_mutex_);
  Instant NextDeadlineLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TickAt(Instant at, Effects* effects) ABSL_LOCKS_EXCLUDED(tick_mutex_);
  void AskForTick(Instant at) ABSL_LOCKS_EXCLUDED(tick_mutex_);  // Whatever was asked for before.

  // ---- held_job_replication.cc: messages to and from replicas.
  void Replay(const v1::ReplicateRequest& request, v1::ReplicateResponse* response, Done done);
  // As Replicate of records, whose call ends with `effects`.
  void ReplayLocked(const v1::ReplicateRequest& request, v1::ReplicateResponse* response, Done done,
                    Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<ShardEngine*> EngineOfReplicaLocked(const ShardKey& key) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // These two with the shard's lock.
  absl::Status InstallLocked(const v1::ReplicateRequest& request, ShardLink& link,
                             std::optional<TableShard> made, Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReplayRecordsLocked(const v1::ReplicateRequest& request, ShardLink& link)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  ReplicaVerdict Consider(const v1::ReplicateRequest& request, const ShardLink& link) const;
  // OK: what it says can be done, or was done before.
  absl::Status CheckVerdictLocked(const v1::ReplicateRequest& request,
                                  const ReplicaVerdict& verdict, const ShardLink& link) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Ends the call with what is held, once the log has it, or with why nothing came of it.
  void AnswerLocked(const v1::ReplicateRequest& request, const absl::Status& status,
                    v1::ReplicateResponse* response, Done done, Effects* effects)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void OnProgress(const ShardKey& key, const ReplicaMessage& message, int64_t bytes);
  void OnInstalled(const ShardKey& key, const ReplicaMessage& message, const absl::Status& status,
                   const v1::ReplicateResponse& response);
  // `sent`: the messages whose outcomes have come, or come later.
  void OnReplicated(const std::vector<Outgoing>& sent, absl::Span<const ReplicaOutcome> outcomes);
  void OnAnswerLocked(const ShardKey& key, const ReplicaMessage& message,
                      const absl::Status& status, const v1::ReplicateResponse& response,
                      Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Makes barriers that pulls wait for, then does for all shards that were touched what follows:
  // replies that may leave, messages, log, reports, deadlines.
  void SettleLocked(Sink& sink, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // These two with the shard's lock.
  void SettleLinkLocked(ShardLink& link, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void SendLocked(ShardLink& link, Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool LogsBegunLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Snapshots of other shards that are due for the log, once there is room for them.
  void SettleLogsLocked(Effects* effects) ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  // ---- held_job_capture.cc: moments of the job that are read while it goes on.
  // All of a shard as it is now.
  // For links, which call it under the shard's lock. Rows of it that are damaged fail the job.
  absl::StatusOr<CapturedShard> CaptureAll(const ShardKey& key) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  enum class IfDamaged { kReaderFails, kJobFails };
  // With the shard's lock. Without its rows.
  CapturedShard CapturedLocked(const ShardKey& key,
                               v1::ShardSnapshot copy) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // Likewise. Null if it has none.
  std::shared_ptr<Rows> RowsLocked(const ShardKey& key, PinId pin,
                                   const v1::ShardSnapshot& snapshot,
                                   IfDamaged if_damaged) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // Reads the next piece of these and perhaps more of them, and of those that they precede.
  absl::Status ReadTurn(Rows& first);
  void Unpin(const ShardKey& key, PinId pin);
  void UnpinUnreadLocked() ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckOpenLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // OK: every one of `keys` is at the version that the order names, if it names one.
  absl::Status CheckVersionsLocked(const v1::CheckpointOrder& order,
                                   const std::vector<ShardKey>& keys) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Bodies of rows that are read ahead for one pull.
  static constexpr int64_t kFetchBytesMax = 64 << 20;

  // Constant after construction.
  const Options options_;
  std::atomic<int64_t> log_bytes_{0};  // The links'.
  const ShardLink::Options link_options_;
  const std::shared_ptr<const ShardFactory> factory_;    // Shared with the agent's maker.
  const std::shared_ptr<InstallMemory> install_memory_;  // Shared with installs on their way.

  // Thread-safe by themselves.
  std::atomic<uint64_t> pins_{0};  // Pins that have been given out.
  UnreadPins unread_;
  WaitingCalls calls_;
  KeyLists key_lists_;

  // Is locked before a shard's mutex, and that before the ones below.
  mutable absl::Mutex mutex_;
  v1::RoutingTable routing_ ABSL_GUARDED_BY(mutex_);
  Membership membership_ ABSL_GUARDED_BY(mutex_);
  // The shards in it are guarded by their engines' mutexes where mutex_ is shared.
  JobTables tables_;
  // Of the shards' versions: the membership's incarnation floor, when their routing table came. It
  // rises when the job goes back to a checkpoint, and those shards are read.
  uint64_t timeline_ ABSL_GUARDED_BY(mutex_) = 0;
  Engines engines_ ABSL_GUARDED_BY(mutex_);  // Every shard that this server is to hold.
  uint64_t engines_made_ ABSL_GUARDED_BY(mutex_) = 0;
  JobSnapshots snapshots_;                        // Guarded as tables_, but for IsFull.
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);   // Not OK: why.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // The status of Fail.
  Instant read_lease_ ABSL_GUARDED_BY(mutex_);

  absl::Mutex waiting_for_mutex_;  // Guards PullResponse.waiting_for of every call that waits.
  mutable absl::Mutex installs_mutex_;
  // Installs to each server that has any; at most kInstallsInFlightMax.
  absl::btree_map<FollowerKey, int> installs_in_flight_ ABSL_GUARDED_BY(installs_mutex_);
  absl::Mutex tick_mutex_;
  // Earliest tick that was asked for since the last one.
  Instant tick_asked_ ABSL_GUARDED_BY(tick_mutex_) = Instant::InfiniteFuture();
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_SERVICE_HELD_JOB_H_
