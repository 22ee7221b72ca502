// JobState: what the parts of one job on this server share: its shards, who may use them, the calls
// that wait, and the locks under which all of it changes.
//
// HeldJob owns the state and the parts, each of which holds a pointer to it. The state knows
// neither the parts nor gRPC; what is here is what several of them need.
//
// Locks, in the order in which they are taken:
//   1. `mutex`. Messages with values (pushes, pulls, scans, records for replicas and their answers)
//      share it, so that messages of several connections run at the same time. Operations on the
//      job as a whole (routing, membership, snapshots, whole shards, calls that end with an error,
//      time) hold it exclusively, so that they come between whole messages, and see every shard at
//      rest.
//   2. The mutex of a shard (ShardEngine). A thread that waits for one holds no other shard's.
//   3. Others, each under a name that ends in mutex, and those of members that are thread-safe by
//      themselves.
// Callbacks and sends run outside all of them: an operation collects them as JobEffects.
// Thread safety: thread-safe under these locks; functions named Locked need `mutex`.
#ifndef CAPSTAN_SERVER_ENGINE_JOB_JOB_STATE_H_
#define CAPSTAN_SERVER_ENGINE_JOB_JOB_STATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/security/capability.h"
#include "common/time/clock.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "server/core/messages/membership.h"
#include "server/core/replication/job_routing.h"
#include "server/core/replication/shard_primary.h"
#include "server/engine/install_memory.h"
#include "server/engine/key_lists.h"
#include "server/engine/message_checks.h"
#include "server/engine/record_sink.h"
#include "server/engine/replica_transport.h"
#include "server/engine/shard_engine.h"
#include "server/engine/shard_link.h"
#include "server/engine/unread_pins.h"
#include "server/engine/waiting_calls.h"
#include "server/snapshots/job_snapshots.h"
#include "server/store/tables/job_tables.h"
#include "server/store/tables/shard_factory.h"

namespace capstan::server {

// The work that an operation leaves until it has released the mutex: see CommitPipeline::Perform.
struct JobEffects {
  struct Outgoing {  // A message to a replica.
    ShardKey shard;
    ReplicaMessage message;
    v1::ServerAddress to;
    ReplicaRequest request;
  };
  EndedCalls ended;
  std::vector<Outgoing> sends;
  std::optional<Instant> tick;
  bool report = false;
  // The work that an operation which shares the mutex leaves to one that holds it exclusively.
  std::optional<std::pair<WaitingCalls::CallId, absl::Status>> failed;  // Ends its call.
  std::vector<ShardKey> deposed;  // Calls that wait for these are to end, too.
  bool snapshots_full = false;
  std::optional<TableShard> replaced;  // Destroyed without the mutex, as large ones take time.
};

// The `finish` of JobState::ForEachPrimaryLocked for work that leaves nothing to finish.
inline constexpr auto kNothingBegun = [] { return absl::OkStatus(); };

struct JobState {
  using CallId = WaitingCalls::CallId;
  using Engines = std::map<ShardKey, std::unique_ptr<ShardEngine>>;
  using CaptureShard = std::function<absl::StatusOr<CapturedShard>(const ShardKey&)>;

  struct Options {
    JobId job;
    std::string unique_id{};  // TableAssignment.unique_id: no other job has it, also of this id.
    NodeId node;              // This server and its incarnation, as routing tables name it.
    Incarnation incarnation;
    std::optional<CapabilityKey> capability_key = {};  // CallRights says what it is for.
    std::string owner{};                               // TableAssignment.owner.
    // The job asks for replicas or a log: replies wait until what they rest on is committed.
    bool safe_replies = false;
    const Clock* clock = nullptr;           // Outlives the job.
    ReplicaTransport* transport = nullptr;  // Outlives the job. Null: no routing names replicas.
    RecordSink* log = nullptr;              // Outlives the job. Null: the job has no log.
    int64_t log_snapshot_bytes_max = ShardLink::kLogSnapshotBytesMax;
    KeyLists::Limits key_lists;
    SnapshotLeases::Limits snapshots;
    // A Tick is due at that time, earlier than requested before. Called under no lock of the job.
    std::function<void(Instant)> schedule_tick;
    // Called when the job's report to the scheduler has changed, under no lock of the job.
    std::function<void()> on_report;
  };

  // `weak_job`: the job that owns this; `capture`: all of a shard as it is now, for its link.
  JobState(Options job_options, std::shared_ptr<const ShardFactory> shard_factory,
           std::function<std::weak_ptr<void>()> weak_job, CaptureShard capture);

  // A part of the job, for callbacks that may come after the job was dropped.
  template <typename Part>
  std::weak_ptr<Part> WeakOf(Part* part) const {
    return std::shared_ptr<Part>(weak_job().lock(), part);
  }

  // Checks that the job is held, and that nothing of it is lost.
  absl::Status CheckOpenLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex);
  // Errors: kNotFound  this server holds no copy of it.
  absl::StatusOr<ShardEngine*> EngineLocked(const ShardKey& key) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex);
  absl::Status NotHeldLocked(const ShardKey& key) const ABSL_SHARED_LOCKS_REQUIRED(mutex);
  // Checks that the shard's primary is here.
  absl::Status CheckPrimaryLocked(const ShardEngine& engine) const ABSL_SHARED_LOCKS_REQUIRED(mutex)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine.mutex);
  static absl::Status ReplacedError(const ShardKey& key);  // Another server is its primary now.
  std::vector<ShardKey> PrimariesLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex);
  // Whether the logs of all shards whose primary is here say durably that this incarnation has
  // them. True without a log.
  bool LogsBegunLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex);
  // Calls work(i) for each shard of a message under the lock of the shard, if its primary is here.
  // Shards that are free come first, so that messages which come at the same time do not wait for
  // each other at every shard. A shard keeps its lock while a device updates it (updating()), until
  // finish() has waited for all that work() has begun. Stops at the first error, but calls finish()
  // all the same.
  template <typename Shards, typename Work, typename Finish>
  absl::Status ForEachPrimaryLocked(const Shards& shards, const Work& work,
                                    const Finish& finish) const ABSL_NO_THREAD_SAFETY_ANALYSIS;

  // Ends the call, or all calls that wait for the shard, whatever else they wait for.
  void EndLocked(CallId call, const absl::Status& status, EndedCalls* ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void EndWaitingForLocked(const ShardKey& key, const absl::Status& status, EndedCalls* ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void UnpinUnreadLocked() ABSL_SHARED_LOCKS_REQUIRED(mutex);

  // Asks for a tick at that time, unless one is due no later.
  void TickAt(Instant at, JobEffects* effects) ABSL_LOCKS_EXCLUDED(tick_mutex);
  void AskForTick(Instant at) ABSL_LOCKS_EXCLUDED(tick_mutex);  // Sets tick_asked.

  // Constant after construction.
  const Options options;
  const std::function<std::weak_ptr<void>()> weak_job;
  std::atomic<int64_t> log_bytes{0};  // See ShardLink::Options.
  const ShardLink::Options link_options;
  const std::shared_ptr<const ShardFactory> factory;    // Shared with the agent's maker.
  const std::shared_ptr<InstallMemory> install_memory;  // Shared with installs on their way.

  // Thread-safe by themselves.
  std::atomic<uint64_t> pins{0};  // Pins that have been given out.
  UnreadPins unread;
  WaitingCalls calls;
  KeyLists key_lists;

  mutable absl::Mutex mutex;
  JobRouting routing ABSL_GUARDED_BY(mutex);
  v1::RoutingTable routing_table ABSL_GUARDED_BY(mutex);  // The last accepted table, for workers.
  Membership membership ABSL_GUARDED_BY(mutex);
  // The shards in it are guarded by their engines' mutexes where `mutex` is shared.
  JobTables tables;
  Engines engines ABSL_GUARDED_BY(mutex);       // Every shard that this server is to hold.
  JobSnapshots snapshots;                       // Guarded as `tables`, but for IsFull.
  absl::Status closed ABSL_GUARDED_BY(mutex);   // Why it is closed; OK if it is not.
  absl::Status failure ABSL_GUARDED_BY(mutex);  // The status of HeldJob::Fail.

  absl::Mutex waiting_on_mutex;  // Guards PullResponse.waiting_on of every call that waits.
  absl::Mutex tick_mutex;
  // Earliest tick that was asked for since the last one.
  Instant tick_asked ABSL_GUARDED_BY(tick_mutex) = Instant::InfiniteFuture();
};

template <typename Shards, typename Work, typename Finish>
absl::Status JobState::ForEachPrimaryLocked(const Shards& shards, const Work& work,
                                            const Finish& finish) const {
  std::vector<ShardEngine*> updating;  // Their updates are unfinished, and their locks are kept.
  const auto work_locked = [&](int i, ShardEngine& engine) {
    absl::Status status = CheckPrimaryLocked(engine);
    if (status.ok()) status = work(i);
    if (status.ok() && tables.Find(KeyOf(shards[i]))->store().updating()) {
      updating.push_back(&engine);
    } else {
      engine.mutex.Unlock();
    }
    return status;
  };
  const auto finish_locked = [&] {
    absl::Status status = finish();
    for (ShardEngine* const engine : updating) engine->mutex.Unlock();
    updating.clear();
    return status;
  };
  absl::Status status;
  std::vector<int> busy;
  for (int i = 0; i < shards.size() && status.ok(); ++i) {
    const absl::StatusOr<ShardEngine*> engine = EngineLocked(KeyOf(shards[i]));
    if (!engine.ok()) {
      status = engine.status();
    } else if ((*engine)->mutex.TryLock()) {
      status = work_locked(i, **engine);
    } else {
      busy.push_back(i);
    }
  }
  status.Update(finish_locked());  // Also finishes the shards before one that has failed.
  for (size_t b = 0; b < busy.size() && status.ok(); ++b) {
    ShardEngine& engine = *engines.at(KeyOf(shards[busy[b]]));
    engine.mutex.Lock();  // No other shard is locked, so messages cannot wait for each other.
    status = work_locked(busy[b], engine);
    status.Update(finish_locked());
  }
  return status;
}

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_JOB_JOB_STATE_H_
