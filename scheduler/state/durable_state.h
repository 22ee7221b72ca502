// DurableState: all that the scheduler knows (the core, the admitted jobs, the orphaned logs) and
// the calls that wait for it, behind one mutex. Nobody hears of a change before it is durable.
//
//   a step: [ mutex: core ] --Commit--> commit queue --durable--> Finish: answers to calls
//                ^                                      |-------> output thread: log, files of
//   timer thread: Tick at NextDeadline                  |         jobs, answers about jobs
//                                                       \-------> FileWork
//
// The core only decides; this class makes its decisions durable and carries them out. A caller
// takes a step in this way: it locks mutex(), checks Running(), changes core(), jobs() or
// orphans(), and gives Commit() the core's actions, the answer to its call and the changed rows.
// Answers about jobs pass through the output thread, so that a client which reads that a job has
// ended finds its files written.
// SchedulerService, JobSubmission, OrphanRecovery and ArtifactPublisher take steps.
// Thread safety: thread-safe, except that one thread calls Start, EndCalls and Stop.
// Invariant: no answer is sent, and no event is logged, before its step and all earlier steps are
//            durable.
#ifndef CAPSTAN_SCHEDULER_STATE_DURABLE_STATE_H_
#define CAPSTAN_SCHEDULER_STATE_DURABLE_STATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/time/clock.h"
#include "proto/scheduler.pb.h"
#include "scheduler/admission/admission.h"
#include "scheduler/codec/status_codec.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/output/event_recorder.h"
#include "scheduler/queues/commit_queue.h"
#include "scheduler/queues/serial_executor.h"
#include "scheduler/state/file_work.h"
#include "scheduler/state/held_calls.h"
#include "scheduler/state/held_connections.h"
#include "scheduler/state/orphaned_logs.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

class DurableState {
 public:
  struct Options {
    SchedulerCore::Options core;
    std::string hostname;  // The name of this host, which answers give beside each path.
    // Called once, by any thread, when the state can no longer be written: the process must end.
    std::function<void(const absl::Status&)> on_fatal;
    // Called when it is durable that the job was forgotten. The commit queue's thread calls it; it
    // must not wait.
    std::function<void(const JobId&)> on_forgotten;
  };
  // Passes a call to the core, which answers it later. If it returns an error, the core has not
  // accepted the call.
  using Ask = std::function<absl::Status(SchedulerCore& core, Actions& actions)>;

  static constexpr size_t kOutputsMax = 10'000;  // Waiting batches of events, and late answers.

  // Makes a state that goes on where the scheduler that wrote `rows` ended: all rows of `store`.
  // `store` and `clock` outlive the state, which alone uses the store from Start() on.
  // Errors: kDataLoss  the rows cannot be decoded.
  static absl::StatusOr<std::unique_ptr<DurableState>> Open(const Options& options,
                                                            const StoreRows& rows, Store* store,
                                                            const Clock* clock);
  ~DurableState();  // Stops.

  // The commit queue's thread calls `post_file_work` with what a durable step leaves.
  void Start(std::function<void(FileWork)> post_file_work) ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers all held and later calls with UNAVAILABLE, and ends the timer. Idempotent.
  void EndCalls() ABSL_LOCKS_EXCLUDED(mutex_);
  // Same as EndCalls(), then finishes all queued steps. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  SchedulerCore& core() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return *core_; }
  AdmittedJobs& jobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return jobs_; }
  OrphanedLogs& orphans() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return orphans_; }
  HeldConnections& connections() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return connections_; }

  // Errors: kUnavailable  the state is stopped or cannot be written.
  absl::Status Running() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Ticket NextTicket() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Ticket(next_ticket_++); }
  // Takes the step that `ask` makes and holds the call until the core answers it. If Running() or
  // `ask` returns an error, the call gets that answer.
  void Hold(Ticket ticket, const HeldCall& call, const Ask& ask)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Holds(Ticket ticket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return calls_.Has(ticket);
  }
  // Makes `also` and the changes of a step durable, then sends `answers` and performs `actions`. If
  // that fails, all these calls get UNAVAILABLE and nothing else is done.
  void Commit(Actions actions, std::vector<CallAnswer> answers = {},
              std::vector<StoreWrite> also = {}) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::JobStatus StatusOf(const JobView& view, StatusDetail detail)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Instant Now() const { return clock_->Now(); }
  int64_t UnixMs() const { return calendar_.UnixMs(clock_->Now()); }
  const std::string& hostname() const { return hostname_; }

 private:
  // The work that is left once a step is durable.
  struct Results {
    std::vector<CallAnswer> answers;
    std::vector<RecordedEvent> events;
    std::set<JobId> forgotten;  // Jobs that the core has forgotten.
    FileWork files;
  };
  struct Record {
    uint64_t number = 0;                       // TableAssignment::record.
    std::shared_ptr<const std::string> bytes;  // Shared with answers; immutable. Null: too large.
  };

  DurableState(const Options& options, Store* store, const Clock* clock,
               std::unique_ptr<SchedulerCore> core, AdmittedJobs jobs, OrphanedLogs orphans);

  // ---- durable_state_results.cc: the results of a step
  void Collect(Actions actions, Results& results) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answer() adds the answer to the call of a reply. No effect if that call is no longer held.
  // Large responses are encoded later, without the mutex.
  void Answer(NodeReply reply, Results& results) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(TaskReply reply, Results& results) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(const JobReply& reply, Results& results) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(const DrainReply& reply, Results& results) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(const CheckpointReply& reply, Results& results) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(SnapshotReply reply, Results& results) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null: no such job.
  std::shared_ptr<const AdmittedJob> Admitted(const JobId& job) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the job's record `number`, which servers store. Null: it is too large, or the job is
  // unknown.
  std::shared_ptr<const std::string> RecordOf(const JobId& job, uint64_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CollectEvents(Events events, Results& results) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(Results& results, const absl::Status& durable) ABSL_LOCKS_EXCLUDED(mutex_);

  void OnCommitFailure(const absl::Status& failure) ABSL_LOCKS_EXCLUDED(mutex_);
  // Completes the files of jobs that ended before this scheduler started.
  void CompleteFiles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunTimer() ABSL_LOCKS_EXCLUDED(mutex_);
  void AwaitOthers(Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction, or after Start().
  const std::string hostname_;
  const std::function<void(const absl::Status&)> on_fatal_;
  const std::function<void(const JobId&)> on_forgotten_;
  const Clock* const clock_;
  const Calendar calendar_;
  std::function<void(FileWork)> post_file_work_;

  // Self-synchronized.
  SerialExecutor output_;
  CommitQueue commits_;

  // Only the output thread uses it.
  EventRecorder recorder_;

  absl::Mutex mutex_;
  absl::CondVar timer_changed_;
  const std::unique_ptr<SchedulerCore> core_ ABSL_PT_GUARDED_BY(mutex_);
  Actions restored_ ABSL_GUARDED_BY(mutex_);  // Results of Open(), which Start() performs.
  std::vector<StoreWrite> upgraded_ ABSL_GUARDED_BY(mutex_);  // Rows that Open() has changed.
  AdmittedJobs jobs_ ABSL_GUARDED_BY(mutex_);
  OrphanedLogs orphans_ ABSL_GUARDED_BY(mutex_);
  std::map<JobId, Record> records_
      ABSL_GUARDED_BY(mutex_);  // The newest record of each job that was sent.
  HeldCalls calls_ ABSL_GUARDED_BY(mutex_);
  HeldConnections connections_ ABSL_GUARDED_BY(mutex_);  // Live nodes only.
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  Instant timer_deadline_ ABSL_GUARDED_BY(mutex_);               // The timer thread waits for it.
  std::optional<Instant> fault_logged_ ABSL_GUARDED_BY(mutex_);  // See AwaitOthers().
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // The store's first error.

  std::thread timer_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STATE_DURABLE_STATE_H_
