#include "server/service/parameter_service.h"

#include <grpcpp/support/message_allocator.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "common/net/cord_buffer.h"
#include "common/net/grpc_status.h"
#include "common/shared_memory/shared_values.h"
#include "common/status/status_macros.h"
#include "common/wire/tensor_message.h"

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
class WaitingCall : public grpc::ServerUnaryReactor {
 public:
  explicit WaitingCall(std::shared_ptr<HeldJob> job) : job_(std::move(job)) {}

  HeldJob& job() { return *job_; }
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

absl::Cord Encode(const v1::PushResponse& response) {
  return absl::Cord(response.SerializeAsString());
}

// Where a caller wants the values of its pull.
struct Rooms {
  std::shared_ptr<SharedSegment> segment;  // Null: in the answer.
  v1::PullRequest request;
};

absl::StatusOr<Rooms> RoomsOf(const SharedSegments& segments, const v1::PullRequest& request) {
  Rooms rooms;
  CAPSTAN_ASSIGN_OR_RETURN(rooms.segment, segments.Find(request.segment()));
  if (rooms.segment == nullptr) return rooms;
  CAPSTAN_RETURN_IF_ERROR(CheckRooms(*rooms.segment, request));
  rooms.request = request;
  for (v1::ShardPull& shard : *rooms.request.mutable_shards()) shard.clear_keys();
  return rooms;
}

int64_t BytesOf(const std::vector<absl::Cord>& values) {
  int64_t bytes = 0;
  for (const absl::Cord& each : values) bytes += static_cast<int64_t>(each.size());
  return bytes;
}

// The values of a push that came another way than in its message; counts them either way.
absl::Status TakeShared(const SharedSegments& segments, PushMessage* push, MethodMetrics* metrics) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto segment, segments.Find(push->head.segment()));
  if (segment != nullptr) CAPSTAN_RETURN_IF_ERROR(TakeValues(segment, push));
  const int64_t bytes = BytesOf(push->values);
  metrics->CountValues(bytes, segment == nullptr ? 0 : bytes);
  return absl::OkStatus();
}

void PutIn(const Rooms&, v1::PushResponse*, MethodMetrics*) {}  // It has no values.
void PutIn(const Rooms& rooms, PullAnswer* answer, MethodMetrics* metrics) {
  const int64_t bytes = BytesOf(answer->values);
  if (rooms.segment != nullptr) PutValues(rooms.segment, rooms.request, answer);
  metrics->CountValues(bytes, bytes - BytesOf(answer->values));
}
void PutIn(const Rooms& rooms, PushPullAnswer* answer, MethodMetrics* metrics) {
  PutIn(rooms, &answer->pull, metrics);
}

// What is counted of one call, from its arrival.
struct Arrival {
  explicit Arrival(MethodMetrics* of) : metrics(of), begin(of->Begin()) {}
  // Ends it: with an error, before it has become a call of a job.
  grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context,
                                   const absl::Status& status) const {
    metrics->End(begin, status.ok());
    return FinishNow(context, status);
  }

  MethodMetrics* metrics;
  int64_t begin;
};

// One whose answer is encoded by hand, once the job has filled it in.
template <typename Answer>
class AnsweredCall final : public WaitingCall {
 public:
  AnsweredCall(std::shared_ptr<HeldJob> job, const Arrival& arrival, Rooms rooms,
               grpc::ByteBuffer* response)
      : WaitingCall(std::move(job)),
        arrival_(arrival),
        rooms_(std::move(rooms)),
        response_(response) {}

  Answer* answer() { return &answer_; }
  HeldJob::Done Finisher() {
    return [this](const absl::Status& status) {
      if (status.ok()) {
        PutIn(rooms_, &answer_, arrival_.metrics);
        *response_ = ToByteBuffer(Encode(answer_));
      }
      arrival_.metrics->End(arrival_.begin, status.ok());
      Finish(ToGrpcStatus(status));
    };
  }

 private:
  const Arrival arrival_;
  const Rooms rooms_;
  grpc::ByteBuffer* const response_;
  Answer answer_;
};

// Lets go of a request before the call ends: what is wanted of it is in the message by now.
void Free(const grpc::ByteBuffer* request) { const_cast<grpc::ByteBuffer*>(request)->Clear(); }

absl::StatusOr<v1::PullRequest> DecodePull(const grpc::ByteBuffer& request) {
  v1::PullRequest pull;
  if (pull.ParseFromString(std::string(ToCord(request)))) return pull;
  return absl::InvalidArgumentError("the message is not a valid capstan.v1.PullRequest");
}

// Runs `start(call)`, which returns the id of a call that waits, for the job of `caller`.
template <typename Answer, typename Start>
grpc::ServerUnaryReactor* Begin(HeldJobs& jobs, grpc::CallbackServerContext* context,
                                const Arrival& arrival, const v1::Caller& caller,
                                absl::StatusOr<Rooms> rooms, grpc::ByteBuffer* response,
                                Start start) {
  if (!rooms.ok()) return arrival.Refuse(context, rooms.status());
  absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs.Find(caller.job_id());
  if (!job.ok()) return arrival.Refuse(context, job.status());
  auto* call = new AnsweredCall<Answer>(*std::move(job), arrival, *std::move(rooms), response);
  call->SetWaits(start(*call));
  arrival.metrics->CarriedOut(arrival.begin);
  return call;
}

absl::Status CheckOneCaller(const PushPullMessage& message) {
  const v1::Caller& pusher = message.push.head.caller();
  const v1::Caller& puller = message.pull.caller();
  if (pusher.job_id() == puller.job_id() && pusher.rank() == puller.rank() &&
      pusher.incarnation() == puller.incarnation()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("push-pull: the callers of push and pull differ: expected one");
}

}  // namespace

// Lets a call give its request back before it waits: records are up to 64 MiB.
class ParameterService::FreeingAllocator final
    : public grpc::MessageAllocator<v1::ReplicateRequest, v1::ReplicateResponse> {
 public:
  grpc::MessageHolder<v1::ReplicateRequest, v1::ReplicateResponse>* AllocateMessages() override {
    return new Holder;
  }

 private:
  class Holder final : public grpc::MessageHolder<v1::ReplicateRequest, v1::ReplicateResponse> {
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
    std::unique_ptr<v1::ReplicateRequest> request_ = std::make_unique<v1::ReplicateRequest>();
    v1::ReplicateResponse response_;
  };
};

ParameterService::ParameterService(HeldJobs* jobs)
    : jobs_(jobs), allocator_(std::make_unique<FreeingAllocator>()) {
  SetMessageAllocatorFor_Replicate(allocator_.get());
}

ParameterService::~ParameterService() = default;

grpc::ServerUnaryReactor* ParameterService::Push(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  const Arrival arrival(&metrics_.push);
  absl::StatusOr<PushMessage> push = DecodePush(ToCord(*request));
  Free(request);
  if (!push.ok()) return arrival.Refuse(context, push.status());
  const absl::Status shared = TakeShared(segments_, &*push, &metrics_.push);
  if (!shared.ok()) return arrival.Refuse(context, shared);
  return Begin<v1::PushResponse>(
      *jobs_, context, arrival, push->head.caller(), Rooms(), response,
      [&](auto& call) { return call.job().Push(*push, call.answer(), call.Finisher()); });
}

grpc::ServerUnaryReactor* ParameterService::Pull(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  const Arrival arrival(&metrics_.pull);
  const absl::StatusOr<v1::PullRequest> pull = DecodePull(*request);
  if (!pull.ok()) return arrival.Refuse(context, pull.status());
  return Begin<PullAnswer>(
      *jobs_, context, arrival, pull->caller(), RoomsOf(segments_, *pull), response,
      [&](auto& call) { return call.job().Pull(*pull, call.answer(), call.Finisher()); });
}

grpc::ServerUnaryReactor* ParameterService::PushPull(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  const Arrival arrival(&metrics_.push_pull);
  absl::StatusOr<PushPullMessage> message = DecodePushPull(ToCord(*request));
  Free(request);
  if (!message.ok()) return arrival.Refuse(context, message.status());
  absl::Status status = CheckOneCaller(*message);
  if (status.ok()) status = TakeShared(segments_, &message->push, &metrics_.push_pull);
  if (!status.ok()) return arrival.Refuse(context, status);
  return Begin<PushPullAnswer>(
      *jobs_, context, arrival, message->pull.caller(), RoomsOf(segments_, message->pull), response,
      [&](auto& call) { return call.job().PushPull(*message, call.answer(), call.Finisher()); });
}

grpc::ServerUnaryReactor* ParameterService::ScanRows(grpc::CallbackServerContext* context,
                                                     const v1::ScanRowsRequest* request,
                                                     v1::ScanRowsResponse* response) {
  const Arrival arrival(&metrics_.scan_rows);
  absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs_->Find(request->caller().job_id());
  if (!job.ok()) return arrival.Refuse(context, job.status());
  auto* call = new WaitingCall(*std::move(job));
  call->SetWaits(call->job().ScanRows(
      *request, response, [call, arrival, response](const absl::Status& status) {
        if (status.ok()) {
          arrival.metrics->CountValues(static_cast<int64_t>(response->rows().size()), 0);
        }
        arrival.metrics->End(arrival.begin, status.ok());
        call->Finish(ToGrpcStatus(status));
      }));
  arrival.metrics->CarriedOut(arrival.begin);
  return call;
}

grpc::ServerUnaryReactor* ParameterService::Replicate(grpc::CallbackServerContext* context,
                                                      const v1::ReplicateRequest* request,
                                                      v1::ReplicateResponse* response) {
  absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs_->Find(request->job_id());
  if (!job.ok()) return FinishNow(context, job.status());
  auto* call = new WaitingCall(*std::move(job));  // It ends by itself: nothing is cancelled.
  call->job().Replicate(*request, response,
                        [call](const absl::Status& status) { call->Finish(ToGrpcStatus(status)); });
  context->GetRpcAllocatorState()->FreeRequest();
  return call;
}

grpc::ServerWriteReactor<v1::ShareMemoryResponse>* ParameterService::ShareMemory(
    grpc::CallbackServerContext*, const v1::ShareMemoryRequest* request) {
  return streams_.Open(*request);
}

grpc::ServerUnaryReactor* ParameterService::GetRouting(grpc::CallbackServerContext* context,
                                                       const v1::GetRoutingRequest* request,
                                                       v1::GetRoutingResponse* response) {
  const absl::StatusOr<std::shared_ptr<HeldJob>> job = jobs_->Find(request->job_id());
  if (!job.ok()) return FinishNow(context, job.status());
  *response->mutable_routing() = (*job)->routing();
  return FinishNow(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ParameterService::DescribePath(grpc::CallbackServerContext* context,
                                                         const v1::DescribePathRequest*,
                                                         v1::DescribePathResponse* response) {
  for (const MethodMetrics* method :
       {&metrics_.push, &metrics_.pull, &metrics_.push_pull, &metrics_.scan_rows}) {
    *response->add_methods() = method->Describe();
  }
  response->set_shared_segments(static_cast<int64_t>(segments_.size()));
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
