#include "worker/task/reporting/scheduler_link.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/observability/log.h"

namespace capstan::worker {
namespace {

bool IsFenced(const absl::Status& status) {
  return status.code() == absl::StatusCode::kAborted ||
         status.code() == absl::StatusCode::kNotFound;
}

}  // namespace

SchedulerLink::SchedulerLink(const Options& options, Callbacks callbacks)
    : options_(options),
      callbacks_(std::move(callbacks)),
      stub_(v1::Scheduler::NewStub(
          MakeChannel(options.scheduler, ChannelKind::kControl, options.credentials))),
      pacer_(options.pace) {}

SchedulerLink::~SchedulerLink() { Stop(); }

void SchedulerLink::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void SchedulerLink::Wake() {
  absl::MutexLock lock(&mutex_);
  woken_ = true;
}

void SchedulerLink::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (in_flight_ != nullptr) in_flight_->TryCancel();
  }
  if (thread_.joinable()) thread_.join();
}

void SchedulerLink::Loop() {
  for (;;) {
    const v1::SyncTaskRequest request = callbacks_.report();
    v1::SyncTaskResponse response;
    const absl::Time sent = absl::Now();
    const absl::Status status = Call(request, &response);
    NoteReachability(status, request.job_id());
    if (IsFenced(status)) {
      callbacks_.fenced(status);
      return;
    }
    if (status.ok()) {
      pacer_.OnAnswer(request, response, absl::Now() - sent);
      callbacks_.receive(response);
    } else {
      pacer_.OnFailure();
    }
    if (!Pause(pacer_.pause())) return;
  }
}

bool SchedulerLink::Pause(absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || woken_; };
  mutex_.AwaitWithTimeout(absl::Condition(&ready), time);
  woken_ = false;
  return !stopping_;
}

absl::Status SchedulerLink::Call(const v1::SyncTaskRequest& request,
                                 v1::SyncTaskResponse* response) {
  grpc::ClientContext context;
  SetDeadline(context, pacer_.timeout());
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("stopping");
    in_flight_ = &context;
  }
  const absl::Status status = FromGrpcStatus(stub_->SyncTask(&context, request, response));
  absl::MutexLock lock(&mutex_);
  in_flight_ = nullptr;
  return status;
}

absl::Status SchedulerLink::ReportOnce(const v1::SyncTaskRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, ReportPacer::kLastTimeout);
  v1::SyncTaskResponse response;
  return FromGrpcStatus(stub_->SyncTask(&context, request, &response));
}

void SchedulerLink::NoteReachability(const absl::Status& status, const std::string& job) {
  const bool reachable = status.ok() || IsFenced(status);
  if (reachable == reachable_) return;
  reachable_ = reachable;
  if (reachable) {
    LogInfo({.job = job}, "the scheduler at {} answers again", options_.scheduler);
  } else {
    LogWarning({.job = job}, "the scheduler at {} does not answer ({}); training goes on",
               options_.scheduler, std::string(status.message()));
  }
}

}  // namespace capstan::worker
