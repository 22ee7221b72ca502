// SimTask's link to the scheduler, as in worker/task/reporting/scheduler_link.h.
#include "absl/strings/str_cat.h"
#include "tests/simulation/network/methods.h"
#include "tests/simulation/shells/sim_task.h"
#include "worker/task/failures.h"
#include "worker/task/reporting/report_pacer.h"
#include "worker/task/task_messages.h"

namespace capstan::sim {
void SimTask::ReportSoon() {
  report_woken_ = true;
  if (reporting_ || ending_) return;
  process_->CancelTimer(report_timer_);
  report_timer_ = process_->After(absl::ZeroDuration(), [this] { Report(); });
}

v1::SyncTaskRequest SimTask::MakeReport() {
  const worker::PushPullSession& session = core_.session();
  v1::SyncTaskRequest request = worker::MakeReport(assignment_, board_, prepared_, revision_seen_);
  request.set_routing_seen(session.needs_routing() ? 0 : session.routing_generation().value());
  if (!activity_.what().empty()) *request.mutable_activity() = activity_;
  if (const worker::SessionWait wait = session.CurrentWait(process_->Now()); wait.waiting) {
    *request.mutable_wait() = worker::WaitToProto(wait, process_->Now());
  }
  if (!failure_.ok()) {
    *request.mutable_failure() = worker::FailureOf(failure_);
  }
  return request;
}

void SimTask::Report() {
  report_timer_ = 0;
  reporting_ = true;
  report_woken_ = false;
  const v1::SyncTaskRequest request = MakeReport();
  world_->network.Call(self_, world_->scheduler, kSyncTask, request.SerializeAsString(),
                       pacer_.timeout(),
                       [this, request, sent = process_->Now()](const absl::Status& status,
                                                               const std::string& answer) {
                         OnReported(request, process_->Now() - sent, status, answer);
                       });
}

void SimTask::OnReported(const v1::SyncTaskRequest& request, absl::Duration took,
                         const absl::Status& status, const std::string& answer) {
  reporting_ = false;
  if (ending_) return;
  if (absl::IsAborted(status) || absl::IsNotFound(status)) {
    world_->trace.Narrate(absl::StrCat(process_->name(), " is told to stop"));
    fenced_ = true;
    interrupted_ = true;
    return Changed();  // It reports no more.
  }
  v1::SyncTaskResponse response;
  const bool answered = status.ok() && response.ParseFromString(answer);
  answered ? pacer_.OnAnswer(request, response, took) : pacer_.OnFailure();
  const absl::Duration delay = report_woken_ ? absl::ZeroDuration() : pacer_.pause();
  report_timer_ = process_->After(delay, [this] { Report(); });
  if (!answered) return;
  revision_seen_ = response.revision();
  if (response.has_routing()) TakeRouting(response.routing());
  if (!response.has_assignment()) return;
  const auto assignment = worker::AssignmentFromProto(response.assignment());
  if (!assignment.ok()) {
    world_->failure = absl::StrCat("assignment: ", assignment.status().ToString());
    return;
  }
  if (!board_.Take(*assignment)) return;
  NoteWork();
  interrupted_ = true;
  Changed();
}

void SimTask::LastWord(int exit_code) {
  world_->network.Call(self_, world_->scheduler, kSyncTask, MakeReport().SerializeAsString(),
                       worker::ReportPacer::kLastTimeout,
                       [this, exit_code](const absl::Status& status, const auto&) {
                         exited_(exit_code != 0 && !status.ok() ? 3 : exit_code);
                       });
}

}  // namespace capstan::sim
