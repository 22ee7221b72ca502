// SchedulerService: the gRPC service. It decodes each call, takes one step of DurableState with it,
// and lets DurableState send the answer.
//
//   gRPC callback --decode--> [ DurableState: a step ] --durable--> encode, Finish
//   SubmitJob, ExportJob, RecoverJob --> admission thread: reads files --> a step
//
// A held call is an entry in a map, not a thread. Calls whose checks read files wait for the
// admission thread, so that large data delays no sync.
// GrpcServer calls it for daemons, tasks and users; the main owns it. Thread safety: thread-safe,
// except that one thread calls Start and Stop.
// Invariant: every call is answered exactly once.
#ifndef CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_H_
#define CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/gate/call_counts.h"
#include "common/security/audit_log.h"
#include "common/storage/files/allowed_paths.h"
#include "common/time/clock.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/artifact_publisher.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/job_rights.h"
#include "scheduler/job_submission.h"
#include "scheduler/orphan_recovery.h"
#include "scheduler/queues/serial_executor.h"
#include "scheduler/state/durable_state.h"
#include "scheduler/state/held_calls.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

class SchedulerService final : public v1::Scheduler::CallbackService {
 public:
  struct Options : DurableState::Options {
    std::string data_folder;  // Exists.
    // The paths that jobs may name. Outlives the service. Null: every path.
    const AllowedPaths* allowed = nullptr;
    JobSubmission::JobChecker check_job;  // Null: CheckJob in this process.
    // Counts the scheduler's calls, for ListNodes. Outlives the service. Null: no counts.
    const AuditLog* audit = nullptr;
  };
  static constexpr size_t kAdmissionsMax = 64;  // Submissions, exports, recoveries that wait.

  // Makes a service that goes on where the scheduler that wrote `store` ended. `store` and `clock`
  // outlive the service, which alone uses the store.
  // Errors: kDataLoss  the store's content cannot be decoded.   And those of Store::Load and Write.
  static absl::StatusOr<std::unique_ptr<SchedulerService>> Open(const Options& options,
                                                                Store* store, const Clock* clock);
  ~SchedulerService() override;  // Stops.

  void Start();
  // Answers all held and later calls with UNAVAILABLE; finishes queued work. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(state_->mutex());

  JobRights& rights() { return rights_; }  // For the other services of the scheduler.

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override;
  grpc::ServerUnaryReactor* SyncNode(grpc::CallbackServerContext* context,
                                     const v1::SyncNodeRequest* request,
                                     v1::SyncNodeResponse* response) override;
  grpc::ServerUnaryReactor* HoldConnection(grpc::CallbackServerContext* context,
                                           const v1::HoldConnectionRequest* request,
                                           v1::HoldConnectionResponse* response) override;
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
  // Passes a held call to the core, which answers it after at most `limit`.
  using AskUpTo = std::function<absl::Status(SchedulerCore& core, Ticket ticket,
                                             absl::Duration limit, Actions& actions)>;

  SchedulerService(const Options& options, std::unique_ptr<DurableState> state,
                   const std::string& cluster_id);

  // Holds a call until the core answers it, for at most `wait_limit_ms`.
  grpc::ServerUnaryReactor* HoldUpTo(grpc::CallbackServerContext* context, int32_t wait_limit_ms,
                                     google::protobuf::Message* response, const AskUpTo& ask)
      ABSL_LOCKS_EXCLUDED(state_->mutex());
  // Lets the admission thread do `work`, and answers the call if that returns an error. If the
  // queue is full, refuses the call with kResourceExhausted.
  grpc::ServerUnaryReactor* PostAdmission(grpc::ServerUnaryReactor* reactor,
                                          std::function<absl::Status()> work);
  // Reports to the core that the call with this ticket was cut, by a reset or because the process
  // ended.
  void ConnectionCut(Ticket ticket, const NodeId& node, Incarnation incarnation)
      ABSL_LOCKS_EXCLUDED(state_->mutex());
  void SyncCut(Ticket ticket, const NodeId& node, Incarnation incarnation)
      ABSL_LOCKS_EXCLUDED(state_->mutex());
  // Answers the call unless it returns an error: then the caller answers the call with that error.
  absl::Status BeginExport(const v1::ExportJobRequest& request, const JobCaller& caller,
                           const Call<v1::ExportJobResponse>& call)
      ABSL_LOCKS_EXCLUDED(state_->mutex());

  const AllowedPaths* const allowed_;  // Null: every path.
  // Self-synchronized, or used by the admission thread alone.
  const std::unique_ptr<DurableState> state_;
  JobRights rights_{state_.get()};
  ArtifactPublisher artifacts_;
  JobSubmission submission_;
  OrphanRecovery recovery_;
  SerialExecutor admission_;
  const AuditLog* const audit_;
  // The nodes' reports of their calls. ListNodes drops those of nodes that are forgotten.
  std::map<NodeId, CallCounts> calls_ ABSL_GUARDED_BY(state_->mutex());
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_H_
