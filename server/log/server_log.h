// ServerLog: the write-ahead logs of all jobs of one server: accepts records without waiting and
// writes them in groups.
//
//   Begin, Append, Continue, Forget --> queue --drain--> JobLog of each job: one write, one sync
//                                                 |--ok--> on_logged: the last position a shard
//                                                 '--failed--> on_failed; all later
//                                                              records of the job are dropped
//
// Whatever arrives while a group is written is the next group, so that the slower the disk, the
// larger the groups: no timer is needed. Each job's log is a folder of its own,
// <folder>/<job id>.<unique id>: another job of the same id has another folder.
// Thread safety: thread-safe. Callbacks run on the writer's thread, under no lock of this class.
#ifndef CAPSTAN_SERVER_LOG_SERVER_LOG_H_
#define CAPSTAN_SERVER_LOG_SERVER_LOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/storage/disk.h"
#include "common/types/ids.h"
#include "common/types/store_revision.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "server/engine/record_sink.h"
#include "server/log/job_log.h"
#include "server/log/task_runner.h"
#include "server/store/tables/captured_shard.h"

namespace capstan::server {

class ServerLog final : public RecordSink {
 public:
  // Limit for queued snapshots and records. Beyond it the log of the job that comes next fails: the
  // disk does not keep up with what is acknowledged to nobody yet.
  static constexpr int64_t kQueueBytesMax = int64_t{4} << 30;
  // A group is written in pieces of about this size.
  static constexpr int64_t kBatchBytesMax = int64_t{64} << 20;

  struct Options {
    Disk* disk = nullptr;  // Outlives the log.
    std::string folder;    // Only this server uses it: the daemon's FolderLock sees to that.
    JobLog::Options job;
    int64_t queue_bytes_max = kQueueBytesMax;
    // Runs one task at a time, and none once the log is gone. See TaskRunner.
    TaskRunner::Execute execute;
    // The unique id that Identify had given to the job when its records came; empty without one.
    using UniqueId = std::string;
    // Everything of the shard up to the position is durable.
    std::function<void(const JobId&, const UniqueId&, const ShardKey&, Term, Position)> on_logged;
    // The job's log has failed for good. Called again for each later group of calls for it, which
    // may be of another incarnation of the job on this server.
    std::function<void(const JobId&, const UniqueId&, const absl::Status&)> on_failed;
  };

  explicit ServerLog(Options options);
  ~ServerLog() override;  // Stops.

  // Reads the logs in the folder; called before any other function. A damaged log does not keep the
  // others from being read: see Unreadable. Errors: the disk's, of the folder itself.
  absl::Status Open();
  void Stop();  // Writes what is queued. Later calls are ignored. Idempotent.

  // Opens the logs that have failed again, after what was queued is written. Those that can be read
  // accept records again, as after a restart of the process. REQUIRES: no job is held.
  void ReopenFailed();

  // The durable shards of all jobs, for RegisterRequest.
  std::vector<v1::StoredShard> Stored() const;
  // Logs that could not be read, by their names, and why. Each stays untouched until its job begins
  // a shard anew.
  std::vector<std::pair<std::string, absl::Status>> Unreadable() const;
  // Bytes that the disk must have free for one of the logs that could not be opened for want of
  // space; nullopt: there is none. Open and ReopenFailed find them.
  std::optional<int64_t> SpaceAwaited() const;

  // Limit of the bytes of all records that Logs returns: logs beyond it come without theirs.
  static constexpr size_t kRecordBytesToldMax = size_t{16} << 20;
  // The logs themselves, at most kLogsToldMax, each with the record that is kept beside it.
  std::vector<v1::KeptLog> Logs() const;

  struct LogName {
    std::string name;       // Name of its folder.
    std::string unique_id;  // Unique id of its job.
  };
  // All logs on the disk that were written for a job with a unique id.
  std::vector<LogName> Names() const;
  bool IsIdentified(const std::string& name) const;  // This incarnation knows it as a job's log.
  void Remove(const std::string& name);              // Same as ForgetJob, for any log.

  // Same as JobLog::Read, once what was queued for the job is written, so that a shard is made from
  // the newest that its log has. Errors: also why the job's log could not be read.
  absl::Status Read(const JobId& job, const ShardKey& shard, const JobLog::Install& install,
                    const JobLog::Replay& replay);

  // Jobs that were identified before are no longer held.
  void BeginIncarnation(Incarnation incarnation) override;
  void Heard(const StoreRevision& revision) override;
  void Identify(const JobId& job, const std::string& unique_id) override;
  // If the record cannot be written, a warning is logged and the log goes on.
  void KeepRecord(const JobId& job, const std::string& record) override;
  void Begin(const JobId& job, const ShardKey& shard, Term term,
             std::shared_ptr<const v1::ShardSnapshot> snapshot,
             std::shared_ptr<CapturedRows> rows) override;
  void Append(const JobId& job, const ShardKey& shard, Term term,
              std::shared_ptr<const v1::ShardRecord> record) override;
  void Continue(const JobId& job, const ShardKey& shard, Term term, Position position) override;
  void Forget(const JobId& job, const ShardKey& shard) override;
  void ForgetJob(const JobId& job) override;

 private:
  struct Entry {  // One of the six calls that are queued.
    enum class Kind { kBegin, kAppend, kContinue, kForget, kForgetJob, kKeepRecord };
    Kind kind = Kind::kBegin;
    JobId job;
    std::string log = {};  // Its name.
    ShardKey shard;
    Term term;
    Position position;  // kContinue.
    std::shared_ptr<const v1::ShardSnapshot> snapshot;
    std::shared_ptr<CapturedRows> rows;  // The snapshot's rows, if it is a bucket's.
    std::shared_ptr<const v1::ShardRecord> record;
    int64_t bytes = 0;
    Incarnation incarnation = {};  // The one in which the call was made.
    StoreRevision seen = {};       // The last one heard of when the call was made.
    std::string kept = {};         // kKeepRecord.
  };
  struct Job {
    mutable absl::Mutex mutex;
    std::unique_ptr<JobLog> log ABSL_GUARDED_BY(mutex);  // Null: there is none, or see failure.
    absl::Status failure ABSL_GUARDED_BY(mutex);
    int64_t copied ABSL_GUARDED_BY(mutex) = 0;  // Bytes that opening the log copies.
    // Shards whose rows were gone when their last Begin was written: later calls for them have no
    // effect.
    std::set<ShardKey> gone ABSL_GUARDED_BY(mutex);
    std::string kept ABSL_GUARDED_BY(mutex);  // The newest record since this process started.
    // Memory that was lent to the log's batch.
    std::vector<std::shared_ptr<const v1::ShardSnapshot>> lent ABSL_GUARDED_BY(mutex);
  };
  void OpenJob(const std::string& log, Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job.mutex);
  // The logs by name, as they are now: a job's own mutex is not taken under that of the server.
  std::map<std::string, std::shared_ptr<Job>> AllJobs() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The last position of each shard of one job in a group.
  using Reached = std::map<ShardKey, std::pair<Term, Position>>;

  std::string FolderOf(const std::string& log) const { return options_.folder + "/" + log; }
  std::string NameOf(const JobId& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(Entry entry);  // An entry without a log's name gets that of its job.
  void Drain();
  bool WriteGroup();  // Writes what is queued. Returns false if nothing is.
  // Waits until nothing of the log (null: of any) is queued. An executor that was passed in runs
  // one task at a time, so no other task would write it meanwhile: then this function does.
  void AwaitWritten(const std::string* log) ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteJob(const std::string& log, const std::vector<Entry>& entries);
  absl::Status WriteEntries(const std::vector<Entry>& entries, Job& job, Reached& reached)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job.mutex);
  absl::Status WriteEntry(const Entry& entry, Job& job, Reached& reached)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job.mutex);
  void WriteRecord(const std::string& folder, const std::string& record);
  // Begins the shard with all its rows, read now. Errors: those of reading them but kAborted.
  static absl::Status WriteBegin(const Entry& entry, Job& job, Reached& reached)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job.mutex);
  // Shared by the map and a call that is using it.
  std::shared_ptr<Job> Find(const std::string& log) const;

  const Options options_;
  mutable absl::Mutex mutex_;
  Incarnation incarnation_ ABSL_GUARDED_BY(mutex_);
  StoreRevision seen_ ABSL_GUARDED_BY(mutex_);
  std::map<JobId, std::string> unique_ids_
      ABSL_GUARDED_BY(mutex_);                                // The newest unique id of each job.
  std::set<std::string> identified_ ABSL_GUARDED_BY(mutex_);  // Logs, in this incarnation.
  std::map<std::string, std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);  // Keyed by log.
  std::vector<Entry> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t queue_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Unwritten entries of each log; none is 0.
  std::map<std::string, size_t> unwritten_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  TaskRunner runner_;  // Last: its thread uses all of the above.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_LOG_SERVER_LOG_H_
