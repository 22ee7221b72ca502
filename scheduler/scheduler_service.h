// SchedulerService: passes the gRPC calls of the Scheduler service to the core, and the core's
// answers back.
//
//   gRPC callback --decode--> [ mutex: core ] --> commit queue --durable--> encode, Finish
//                                  ^                  \--durable--> output thread: log, files,
//   timer thread --Tick at NextDeadline            |                             answers about jobs
//   SubmitJob --> admission thread (reads          \--> checkpoint thread: manifests --> core
//                 the data files) --> core
//
// A held call is an entry in a map, not a thread. Answers about jobs pass through the output
// thread, so that a client which reads that a job has ended finds its files written.
// Thread safety: thread-safe, except that one thread calls Start and Stop.
// Invariant: no answer is sent, and no event is logged, before its step and all earlier steps are
//            durable.
#ifndef CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_H_
#define CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/storage/posix_disk.h"
#include "common/time/clock.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/admission.h"
#include "scheduler/commit_queue.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/event_recorder.h"
#include "scheduler/held_calls.h"
#include "scheduler/node_codec.h"
#include "scheduler/orphaned_logs.h"
#include "scheduler/serial_executor.h"
#include "scheduler/status_codec.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

class SchedulerService final : public v1::Scheduler::CallbackService {
 public:
  struct Options {
    SchedulerCore::Options core;
    std::string data_folder;  // Exists.
    std::string hostname;     // The name of this host, which answers give beside each path.
    // Called once, by any thread, when the state can no longer be written: the process must end.
    std::function<void(const absl::Status&)> on_fatal;
    // Called when it is durable that the job was forgotten. The commit queue's thread calls it; it
    // must not wait.
    std::function<void(const JobId&)> on_forgotten;
  };
  static constexpr size_t kAdmissionsMax = 64;   // Submissions, exports, recoveries that wait.
  static constexpr size_t kManifestsMax = 1000;  // Waiting work on checkpoints and models.
  static constexpr size_t kOutputsMax = 10'000;  // Waiting batches of events, and late answers.

  // Makes a service that goes on where the scheduler that wrote `store` ended. `store` and `clock`
  // outlive the service, which alone uses the store.
  // Errors: kDataLoss  the store's content cannot be decoded.   And those of Store::Load and Write.
  static absl::StatusOr<std::unique_ptr<SchedulerService>> Open(const Options& options,
                                                                Store* store, const Clock* clock);
  ~SchedulerService() override;  // Stops.

  void Start();
  // Answers all held and later calls with UNAVAILABLE; finishes queued work. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Same as SchedulerCore's, for JobFilesService. Both return false after Stop().
  bool MayWriteInto(const std::string& folder) ABSL_LOCKS_EXCLUDED(mutex_);
  bool MayReadFrom(const std::string& folder) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasJob(const JobId& job) ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override;
  grpc::ServerUnaryReactor* SyncNode(grpc::CallbackServerContext* context,
                                     const v1::SyncNodeRequest* request,
                                     v1::SyncNodeResponse* response) override;
  grpc::ServerUnaryReactor* HoldTie(grpc::CallbackServerContext* context,
                                    const v1::HoldTieRequest* request,
                                    v1::HoldTieResponse* response) override;
  grpc::ServerUnaryReactor* SyncTask(grpc::CallbackServerContext* context,
                                     const v1::SyncTaskRequest* request,
                                     v1::SyncTaskResponse* response) override;
  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* StopJob(grpc::CallbackServerContext* context,
                                    const v1::StopJobRequest* request,
                                    v1::StopJobResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::ServerUnaryReactor* AnnotateJob(grpc::CallbackServerContext* context,
                                        const v1::AnnotateJobRequest* request,
                                        v1::AnnotateJobResponse* response) override;
  grpc::ServerUnaryReactor* ExportJob(grpc::CallbackServerContext* context,
                                      const v1::ExportJobRequest* request,
                                      v1::ExportJobResponse* response) override;
  grpc::ServerUnaryReactor* ListRecoverable(grpc::CallbackServerContext* context,
                                            const v1::ListRecoverableRequest* request,
                                            v1::ListRecoverableResponse* response) override;
  grpc::ServerUnaryReactor* RecoverJob(grpc::CallbackServerContext* context,
                                       const v1::RecoverJobRequest* request,
                                       v1::RecoverJobResponse* response) override;
  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context,
                                      const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;
  grpc::ServerUnaryReactor* GetTables(grpc::CallbackServerContext* context,
                                      const v1::GetTablesRequest* request,
                                      v1::GetTablesResponse* response) override;
  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::DrainNodeResponse* response) override;

  grpc::ServerUnaryReactor* OpenSnapshot(grpc::CallbackServerContext* context,
                                         const v1::OpenSnapshotRequest* request,
                                         v1::OpenSnapshotResponse* response) override;
  grpc::ServerUnaryReactor* SaveCheckpoint(grpc::CallbackServerContext* context,
                                           const v1::SaveCheckpointRequest* request,
                                           v1::SaveCheckpointResponse* response) override;

 private:
  template <typename Response>
  struct Call {
    grpc::ServerUnaryReactor* reactor = nullptr;  // Owned by gRPC until Finish.
    Response* response = nullptr;
  };
  // The HoldTie call of a node. It breaks when the node's process ends, which reports the death at
  // once. It ends with the node's incarnation, or when the node sends another HoldTie.
  struct Tie {
    Ticket ticket;
    Incarnation life;
    grpc::ServerUnaryReactor* reactor = nullptr;  // Owned by gRPC until Finish.
  };

  // The core's actions with the calls that they answer: everything that Perform() needs.
  struct Answers;

  SchedulerService(const Options& options, Store* store, const Clock* clock, std::string cluster_id,
                   std::unique_ptr<SchedulerCore> core, AdmittedJobs jobs, OrphanedLogs orphans);

  // Holds a call until the core answers it. ask(actions) passes the call to the core; if it returns
  // an error, the call gets that answer.
  template <typename Ask>
  void Hold(Ticket ticket, const HeldCall& call, const Ask& ask)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Holds a call until the core answers it, for at most its wait_limit_ms.
  // ask(ticket, limit, actions) passes the call to the core.
  template <typename Request, typename Ask>
  grpc::ServerUnaryReactor* HoldUpTo(grpc::CallbackServerContext* context, const Request& request,
                                     google::protobuf::Message* response, const Ask& ask)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes `also` and the changes of a step durable, then performs the step's answers and actions.
  void Commit(Actions actions, Answers answers, std::vector<StoreWrite> also = {})
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Collect(Actions actions, Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answer() adds the answer to the call of a reply. No effect if that call is no longer held.
  // AnswerLater() is for large replies: encode(reply, answers, response) runs without the mutex.
  template <typename Response, typename Reply, typename Encode>
  void AnswerLater(Reply reply, Answers& answers, const Encode& encode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(NodeReply reply, Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(TaskReply reply, Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(const JobReply& reply, Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(const DrainReply& reply, Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(const CheckpointReply& reply, Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(SnapshotReply reply, Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reports to the core that the HoldTie call with this ticket was cut, by a reset or because the
  // process ended.
  void TieCut(Ticket ticket, const NodeId& node, Incarnation incarnation)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the tie of a node's dead incarnation. No effect if it has none.
  void EndTie(const NodeId& node, Incarnation life, Answers& answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsLive(const NodeId& node, Incarnation life) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SyncCut(Ticket ticket, const NodeId& node, Incarnation incarnation)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void CollectEvents(Events events, Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::JobStatus StatusOf(const JobView& view, StatusDetail detail)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // If `durable` is not OK, answers all calls with that error and does nothing else.
  void Perform(Answers& answers, const absl::Status& durable) ABSL_LOCKS_EXCLUDED(mutex_);
  void PostFileWork(Answers& answers);
  void Refuse(const Answers& answers, const absl::Status& why);
  void OnCommitFailure(const absl::Status& failure) ABSL_LOCKS_EXCLUDED(mutex_);
  // Completes the files of jobs that ended before this scheduler started.
  void CompleteFiles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Admit(const v1::SubmitJobRequest& request, const Call<v1::SubmitJobResponse>& call)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Check, Submit and Enter answer the call unless they return an error: then the caller answers
  // the call with that error.
  absl::Status Check(const v1::SubmitJobRequest& request, const Call<v1::SubmitJobResponse>& call)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // If the call is a repetition, answers it with the job of the first call and returns true.
  bool AnswerRepeated(uint64_t submission_id, const Call<v1::SubmitJobResponse>& call)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Submit(AdmittedJob job, OldModel old_model, std::optional<RestoreFrom> restore,
                      const Call<v1::SubmitJobResponse>& call) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Enter(const std::shared_ptr<const AdmittedJob>& admitted,
                     const std::optional<RestoreFrom>& restore,
                     const Call<v1::SubmitJobResponse>& call) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the folder of the checkpoint that the job restores. Empty: it restores none. Each
  // checkpoint that was passed over becomes a warning in `response`.
  // Errors: kInvalidArgument  fields that exclude each other; else those of SubmitJob.
  absl::StatusOr<std::string> FolderToRestore(const v1::SubmitJobRequest& request,
                                              v1::SubmitJobResponse& response)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> NewestCheckpointOf(const JobId& job, v1::SubmitJobResponse& response)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes job.initial_values as a checkpoint, and returns the point where the job begins.
  // REQUIRES: the job has its ids.
  absl::StatusOr<RestoreFrom> KeepInitialValues(AdmittedJob& job);
  // Removes the initial checkpoint of a job that will not restore it any more.
  void RemoveInitialValues(const AdmittedJob& job);
  // Answers the call unless it returns an error: then the caller answers the call with that error.
  absl::Status BeginExport(const v1::ExportJobRequest& request,
                           const Call<v1::ExportJobResponse>& call) ABSL_LOCKS_EXCLUDED(mutex_);
  // Errors of both: those of StopJob.
  absl::Status StopNow(const JobId& job, v1::StopJobResponse& response, Actions& actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SaveAndStop(const JobId& job, v1::StopJobResponse& response, Actions& actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Changes nothing if it fails. Errors: those of AnnotateJob.
  absl::Status Annotate(const v1::AnnotateJobRequest& request, v1::AnnotateJobResponse& response,
                        std::vector<StoreWrite>& writes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Recover and TakeUp recover a job of another cluster (scheduler_service_recover.cc). They answer
  // the call unless they return an error: then the caller answers the call with that error.
  absl::Status Recover(const v1::RecoverJobRequest& request,
                       const Call<v1::RecoverJobResponse>& call) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TakeUp(const JobRecord& record, AdmittedJob job, CheckpointId checkpoint_floor,
                      const Call<v1::RecoverJobResponse>& call) ABSL_LOCKS_EXCLUDED(mutex_);
  v1::RecoverableJob Describe(const std::string& unique_id, const OrphanedJob& orphan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Checks if RecoverJob would succeed now. Errors: those of RecoverJob.
  absl::Status WouldRecover(const OrphanedJob& orphan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the job's record `number`, which servers store. Null: it is too large, or the job is
  // unknown.
  std::shared_ptr<const std::string> RecordOf(const JobId& job, uint64_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Errors: kUnavailable  the service is stopped, or the state cannot be written.
  absl::Status Running() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunTimer() ABSL_LOCKS_EXCLUDED(mutex_);
  Ticket NextTicket() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Ticket(next_ticket_++); }

  void Publish(const CheckpointPublish& publish, const AdmittedJob& job)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Publish(const ModelPublish& publish) ABSL_LOCKS_EXCLUDED(mutex_);
  void RemoveGivenUpIn(const std::string& folder) ABSL_LOCKS_EXCLUDED(removal_mutex_);
  void RemoveCheckpointsOf(const JobId& job) ABSL_LOCKS_EXCLUDED(mutex_, removal_mutex_);

  // Constant after construction.
  const std::string data_folder_;
  const std::string hostname_;
  const std::string cluster_id_;
  const std::function<void(const absl::Status&)> on_fatal_;
  const std::function<void(const JobId&)> on_forgotten_;
  const Clock* const clock_;
  const Calendar calendar_;

  // Self-synchronized.
  SerialExecutor admission_;
  SerialExecutor output_;
  SerialExecutor manifests_;
  PosixDisk disk_;
  CommitQueue commits_;

  // Only the output thread uses it.
  EventRecorder recorder_;

  // Held while checkpoints are removed, and from the reading of a manifest until the job that
  // restores it is submitted and thereby pins it.
  absl::Mutex removal_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);

  absl::Mutex mutex_;
  absl::CondVar timer_changed_;
  const std::unique_ptr<SchedulerCore> core_ ABSL_PT_GUARDED_BY(mutex_);
  Actions restored_ ABSL_GUARDED_BY(mutex_);  // Results of Open(), which Start() performs.
  AdmittedJobs jobs_ ABSL_GUARDED_BY(mutex_);
  OrphanedLogs orphans_ ABSL_GUARDED_BY(mutex_);
  struct Record {
    uint64_t number = 0;                       // TableAssignment::record.
    std::shared_ptr<const std::string> bytes;  // Shared with answers; immutable. Null: too large.
  };
  absl::btree_map<JobId, Record> records_
      ABSL_GUARDED_BY(mutex_);  // The newest record of each job that was sent.
  HeldCalls calls_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<NodeId, Tie> ties_ ABSL_GUARDED_BY(mutex_);  // Live nodes only.
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  Instant timer_deadline_ ABSL_GUARDED_BY(mutex_);  // The timer thread waits for it.
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // The store's first error.

  std::thread timer_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_H_
