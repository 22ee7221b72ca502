// SchedulerService: carries the Scheduler's gRPC calls to the core and its answers back.
//
//   gRPC callback --decode--> [ mutex: core ] --unlocked--> encode, Finish
//                                  ^                \------> output thread: log, files, job answers
//   timer thread --Tick at NextDeadline
//   SubmitJob --> admission thread (reads the data files) --> core
//
// A held call is an entry in a map, not a thread. Answers about jobs pass through the output
// thread, so that whoever reads that a job has ended finds its files written.
// Thread safety: thread-safe, except that Start and Stop are one thread's.
#ifndef CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_H_
#define CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/time/clock.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/admission.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/counter_file.h"
#include "scheduler/event_recorder.h"
#include "scheduler/serial_executor.h"
#include "scheduler/status_codec.h"

namespace capstan::scheduler {

class SchedulerService final : public v1::Scheduler::CallbackService {
 public:
  struct Options {
    SchedulerCore::Options core;  // first_incarnation is set from `counters`.
    std::string data_folder;      // Exists.
  };
  static constexpr size_t kAdmissionsMax = 64;   // Submissions that wait for their check.
  static constexpr size_t kOutputsMax = 10'000;  // Batches of events that wait to be written.

  // `clock` outlives the service.
  SchedulerService(const Options& options, CounterFile counters, const Clock* clock);
  ~SchedulerService() override;  // Stops.

  void Start();
  // Answers every held call with UNAVAILABLE, and all later ones; writes what is left. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override;
  grpc::ServerUnaryReactor* SyncNode(grpc::CallbackServerContext* context,
                                     const v1::SyncNodeRequest* request,
                                     v1::SyncNodeResponse* response) override;
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
  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context,
                                      const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;
  grpc::ServerUnaryReactor* GetTables(grpc::CallbackServerContext* context,
                                      const v1::GetTablesRequest* request,
                                      v1::GetTablesResponse* response) override;
  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::DrainNodeResponse* response) override;

 private:
  template <typename Response>
  struct Call {
    grpc::ServerUnaryReactor* reactor = nullptr;  // gRPC's, until Finish.
    Response* response = nullptr;
  };
  template <typename Response>
  using Calls = absl::btree_map<Ticket, Call<Response>>;

  // The core's actions with the calls that they answer: all that is needed once the mutex is free.
  struct Answers;

  // The call with this ticket was cut, by a reset or because its process is gone.
  void SyncCut(Ticket ticket, const NodeId& node, Incarnation incarnation)
      ABSL_LOCKS_EXCLUDED(mutex_);
  Answers Collect(Actions actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CollectEvents(Events events, Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::JobStatus StatusOf(const JobView& view, StatusDetail detail)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(Answers answers) ABSL_LOCKS_EXCLUDED(mutex_);
  void Admit(const v1::SubmitJobRequest& request, const Call<v1::SubmitJobResponse>& call)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Submit(AdmittedJob job, v1::SubmitJobResponse* response) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Running() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // kUnavailable once stopped.
  void RunTimer() ABSL_LOCKS_EXCLUDED(mutex_);
  Ticket NextTicket() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const std::string data_folder_;
  const Clock* const clock_;
  const Calendar calendar_;

  // Self-synchronized.
  SerialExecutor admission_;
  SerialExecutor output_;

  // The output thread's only.
  EventRecorder recorder_;

  absl::Mutex mutex_;
  absl::CondVar timer_changed_;
  SchedulerCore core_ ABSL_GUARDED_BY(mutex_);
  CounterFile counters_ ABSL_GUARDED_BY(mutex_);
  AdmittedJobs jobs_ ABSL_GUARDED_BY(mutex_);
  Calls<v1::SyncNodeResponse> node_calls_ ABSL_GUARDED_BY(mutex_);
  Calls<v1::SyncTaskResponse> task_calls_ ABSL_GUARDED_BY(mutex_);
  Calls<v1::GetJobResponse> job_calls_ ABSL_GUARDED_BY(mutex_);
  Calls<v1::DrainNodeResponse> drain_calls_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  Instant timer_deadline_ ABSL_GUARDED_BY(mutex_);  // What the timer thread waits for.
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread timer_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_H_
