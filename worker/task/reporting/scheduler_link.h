// SchedulerLink: the thread that reports to the scheduler for a task, and receives its assignments.
//
// At its pace (report_pacer.h), and at once after Wake(), it asks `report` for the task's state,
// sends it as a SyncTask call and passes the answer to `receive`. While the scheduler cannot be
// reached it keeps trying, without limit (training goes on meanwhile), and logs this once.
// Thread safety: thread-safe; the callbacks run on the link's thread.
#ifndef CAPSTAN_WORKER_TASK_REPORTING_SCHEDULER_LINK_H_
#define CAPSTAN_WORKER_TASK_REPORTING_SCHEDULER_LINK_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/grpc/credentials.h"
#include "proto/scheduler.grpc.pb.h"
#include "worker/task/reporting/report_pacer.h"

namespace capstan::worker {

class SchedulerLink {
 public:
  struct Options {
    std::string scheduler;  // host:port
    ReportPace pace;
    const Credentials* credentials = nullptr;  // Null: plain text. Outlives the link.
  };
  struct Callbacks {
    std::function<v1::SyncTaskRequest()> report;
    std::function<void(const v1::SyncTaskResponse&)> receive;
    // The scheduler does not know this incarnation any more: the process must end. Called once,
    // at the end.
    std::function<void(const absl::Status&)> fenced;
  };
  SchedulerLink(const Options& options, Callbacks callbacks);
  ~SchedulerLink();  // Stops.

  void Start();
  void Wake();  // Reports at once.
  // Ends the thread; a call in flight is cancelled. Idempotent.
  void Stop();

  // Sends one report outside the thread, the last before the process exits. REQUIRES: stopped.
  absl::Status ReportOnce(const v1::SyncTaskRequest& request);

 private:
  void Loop();
  absl::Status Call(const v1::SyncTaskRequest& request, v1::SyncTaskResponse* response);
  // Returns false when stopping.
  bool Pause(absl::Duration time);
  void NoteReachability(const absl::Status& status, const std::string& job);

  const Options options_;  // Constant after construction.
  const Callbacks callbacks_;
  const std::unique_ptr<v1::Scheduler::Stub> stub_;
  // Used by the thread alone.
  bool reachable_ = true;
  ReportPacer pacer_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* in_flight_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;  // Declared last: it dies first.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_REPORTING_SCHEDULER_LINK_H_
