#include "server/service/parameter_service.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/grpc_status.h"

namespace capstan::server {
namespace {

grpc::ServerUnaryReactor* FinishNow(grpc::CallbackServerContext* context,
                                    const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// A call that may wait in a HeldJob. gRPC calls OnCancel and OnDone only after the handler that
// made it has returned, and OnDone last of all; it deletes itself there.
class WaitingCall final : public grpc::ServerUnaryReactor {
 public:
  explicit WaitingCall(std::shared_ptr<HeldJob> job) : job_(std::move(job)) {}

  HeldJob& job() { return *job_; }
  HeldJob::Done Finisher() {
    return [this](const absl::Status& status) { Finish(ToGrpcStatus(status)); };
  }
  // Called in the handler. After it only the id may be used: the call may have ended already.
  void SetWaits(std::optional<HeldJob::CallId> id) { waits_ = id; }

  void OnCancel() override {
    if (waits_.has_value()) job_->Cancel(*waits_);
  }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<HeldJob> job_;  // Shared with HeldJobs, which may drop it meanwhile.
  std::optional<HeldJob::CallId> waits_;
};

}  // namespace

// Lets a push-pull give its request back before it waits: the gradients are up to 64 MiB.
class ParameterService::PushPullAllocator final
    : public grpc::MessageAllocator<v1::PushPullRequest, v1::PushPullResponse> {
 public:
  grpc::MessageHolder<v1::PushPullRequest, v1::PushPullResponse>* AllocateMessages() override {
    return new Holder;
  }

 private:
  class Holder final : public grpc::MessageHolder<v1::PushPullRequest, v1::PushPullResponse> {
   public:
    Holder() {
      set_request(request_.get());
      set_response(&response_);
    }
    void Release() override { delete this; }
    void FreeRequest() override {
      request_.reset();
      set_request(nullptr);
    }

   private:
    std::unique_ptr<v1::PushPullRequest> request_ = std::make_unique<v1::PushPullRequest>();
    v1::PushPullResponse response_;
  };
};

ParameterService::ParameterService(HeldJobs* jobs, const Clock* clock, DeadlineTimer* timer)
    : jobs_(jobs),
      clock_(clock),
      timer_(timer),
      push_pull_allocator_(std::make_unique<PushPullAllocator>()) {
  SetMessageAllocatorFor_PushPull(push_pull_allocator_.get());
}

ParameterService::~ParameterService() = default;

grpc::ServerUnaryReactor* ParameterService::Push(grpc::CallbackServerContext* context,
                                                 const v1::PushRequest* request,
                                                 v1::PushResponse* response) {
  const absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs_->Find(request->caller().job_id());
  if (!job.ok()) return FinishNow(context, job.status());
  return FinishNow(context, (*job)->Push(*request, response));
}

grpc::ServerUnaryReactor* ParameterService::Pull(grpc::CallbackServerContext* context,
                                                 const v1::PullRequest* request,
                                                 v1::PullResponse* response) {
  absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs_->Find(request->caller().job_id());
  if (!job.ok()) return FinishNow(context, job.status());
  auto* call = new WaitingCall(*std::move(job));
  const Instant now = clock_->Now();
  const auto waits = call->job().Pull(*request, now, response, call->Finisher());
  call->SetWaits(waits);
  if (waits.has_value()) timer_->Schedule(now + absl::Milliseconds(request->wait_limit_ms()));
  return call;
}

grpc::ServerUnaryReactor* ParameterService::PushPull(grpc::CallbackServerContext* context,
                                                     const v1::PushPullRequest* request,
                                                     v1::PushPullResponse* response) {
  const v1::Caller& pusher = request->push().caller();
  const v1::Caller& puller = request->pull().caller();
  if (pusher.job_id() != puller.job_id() || pusher.rank() != puller.rank() ||
      pusher.incarnation() != puller.incarnation()) {
    return FinishNow(context, absl::InvalidArgumentError(
                                  "push-pull: the callers of push and pull differ: expected one"));
  }
  absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs_->Find(pusher.job_id());
  if (!job.ok()) return FinishNow(context, job.status());
  auto* call = new WaitingCall(*std::move(job));
  const Instant now = clock_->Now();
  const Instant deadline = now + absl::Milliseconds(request->pull().wait_limit_ms());
  const auto waits = call->job().PushPull(*request, now, response, call->Finisher());
  call->SetWaits(waits);
  if (waits.has_value()) timer_->Schedule(deadline);
  context->GetRpcAllocatorState()->FreeRequest();
  return call;
}

grpc::ServerUnaryReactor* ParameterService::DescribeTables(grpc::CallbackServerContext* context,
                                                           const v1::DescribeTablesRequest* request,
                                                           v1::DescribeTablesResponse* response) {
  std::vector<std::shared_ptr<HeldJob>> jobs;
  if (request->job_id().empty()) {
    jobs = jobs_->All();
  } else {
    absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs_->Find(request->job_id());
    if (!job.ok()) return FinishNow(context, job.status());
    jobs.push_back(*std::move(job));
  }
  for (const std::shared_ptr<HeldJob>& job : jobs) {
    for (v1::HeldTable& table : job->Describe()) *response->add_tables() = std::move(table);
  }
  return FinishNow(context, absl::OkStatus());
}

}  // namespace capstan::server
