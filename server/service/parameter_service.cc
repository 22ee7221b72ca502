#include "server/service/parameter_service.h"

#include <grpcpp/support/message_allocator.h>

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

// Lets a call give its request back before it waits: the gradients are up to 64 MiB.
template <typename Request, typename Response>
class FreeingAllocator final : public grpc::MessageAllocator<Request, Response> {
 public:
  grpc::MessageHolder<Request, Response>* AllocateMessages() override { return new Holder; }

 private:
  class Holder final : public grpc::MessageHolder<Request, Response> {
   public:
    Holder() {
      this->set_request(request_.get());
      this->set_response(&response_);
    }
    void Release() override { delete this; }
    void FreeRequest() override {
      request_.reset();
      this->set_request(nullptr);
    }

   private:
    std::unique_ptr<Request> request_ = std::make_unique<Request>();
    Response response_;
  };
};

}  // namespace

struct ParameterService::Allocators {
  FreeingAllocator<v1::PushRequest, v1::PushResponse> push;
  FreeingAllocator<v1::PushPullRequest, v1::PushPullResponse> push_pull;
  FreeingAllocator<v1::ReplicateRequest, v1::ReplicateResponse> replicate;
};

ParameterService::ParameterService(HeldJobs* jobs)
    : jobs_(jobs), allocators_(std::make_unique<Allocators>()) {
  SetMessageAllocatorFor_Push(&allocators_->push);
  SetMessageAllocatorFor_PushPull(&allocators_->push_pull);
  SetMessageAllocatorFor_Replicate(&allocators_->replicate);
}

ParameterService::~ParameterService() = default;

grpc::ServerUnaryReactor* ParameterService::Push(grpc::CallbackServerContext* context,
                                                 const v1::PushRequest* request,
                                                 v1::PushResponse* response) {
  absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs_->Find(request->caller().job_id());
  if (!job.ok()) return FinishNow(context, job.status());
  auto* call = new WaitingCall(*std::move(job));
  call->SetWaits(call->job().Push(*request, response, call->Finisher()));
  context->GetRpcAllocatorState()->FreeRequest();
  return call;
}

grpc::ServerUnaryReactor* ParameterService::Pull(grpc::CallbackServerContext* context,
                                                 const v1::PullRequest* request,
                                                 v1::PullResponse* response) {
  absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs_->Find(request->caller().job_id());
  if (!job.ok()) return FinishNow(context, job.status());
  auto* call = new WaitingCall(*std::move(job));
  call->SetWaits(call->job().Pull(*request, response, call->Finisher()));
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
  call->SetWaits(call->job().PushPull(*request, response, call->Finisher()));
  context->GetRpcAllocatorState()->FreeRequest();
  return call;
}

grpc::ServerUnaryReactor* ParameterService::Replicate(grpc::CallbackServerContext* context,
                                                      const v1::ReplicateRequest* request,
                                                      v1::ReplicateResponse* response) {
  absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs_->Find(request->job_id());
  if (!job.ok()) return FinishNow(context, job.status());
  auto* call = new WaitingCall(*std::move(job));  // It ends by itself: nothing is cancelled.
  call->job().Replicate(*request, response, call->Finisher());
  context->GetRpcAllocatorState()->FreeRequest();
  return call;
}

grpc::ServerUnaryReactor* ParameterService::GetRouting(grpc::CallbackServerContext* context,
                                                       const v1::GetRoutingRequest* request,
                                                       v1::GetRoutingResponse* response) {
  const absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs_->Find(request->job_id());
  if (!job.ok()) return FinishNow(context, job.status());
  *response->mutable_routing() = (*job)->routing();
  return FinishNow(context, absl::OkStatus());
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
