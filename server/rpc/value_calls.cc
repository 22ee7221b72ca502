#include "server/rpc/value_calls.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/shared_memory/shared_values.h"
#include "common/status/status_macros.h"
#include "common/wire/tensor_message.h"

namespace capstan::server {
namespace {

// The place where a caller wants the values of its pull.
struct Rooms {
  std::shared_ptr<SharedSegment> segment;  // Null: the values go into the answer.
  v1::PullRequest request;
};

absl::StatusOr<Rooms> RoomsOf(const SharedSegments& segments, const v1::PullRequest& request) {
  Rooms rooms;
  CAPSTAN_ASSIGN_OR_RETURN(rooms.segment, segments.Find(request.segment(), request.caller()));
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

// Takes the values of a push from its segment if it names one; counts them either way.
absl::Status TakeShared(const SharedSegments& segments, PushMessage* push, MethodMetrics* metrics) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto segment,
                           segments.Find(push->head.segment(), push->head.caller()));
  if (segment != nullptr) CAPSTAN_RETURN_IF_ERROR(TakeValues(segment, push));
  const int64_t bytes = BytesOf(push->values);
  metrics->CountValues(bytes, segment == nullptr ? 0 : bytes);
  return absl::OkStatus();
}

void PutIn(const Rooms&, v1::PushResponse*, MethodMetrics*) {}  // A push's answer has no values.
void PutIn(const Rooms& rooms, PullAnswer* answer, MethodMetrics* metrics) {
  const int64_t bytes = BytesOf(answer->values);
  if (rooms.segment != nullptr) PutValues(rooms.segment, rooms.request, answer);
  metrics->CountValues(bytes, bytes - BytesOf(answer->values));
}

// Counts one call from its arrival on, and answers the caller that waits for it.
template <typename Answer>
class Arrival {
 public:
  Arrival(MethodMetrics* metrics, TransportKind transport, ValueCalls::Done<Answer> done)
      : metrics_(metrics), begin_(metrics->Begin(transport)), done_(std::move(done)) {}

  MethodMetrics* metrics() const { return metrics_; }
  void CarriedOut() const { metrics_->CarriedOut(begin_); }
  void End(absl::StatusOr<Answer> answer) const {
    metrics_->End(begin_, answer.ok());
    done_(std::move(answer));
  }
  // Ends the call before it has become a call of a job.
  ValueCalls::Cancel Refuse(const absl::Status& status) const {
    End(status);
    return nullptr;
  }

 private:
  MethodMetrics* const metrics_;
  const int64_t begin_;
  const ValueCalls::Done<Answer> done_;
};

// A call of a job. The job fills in the answer.
template <typename Answer>
struct Call {
  Arrival<Answer> arrival;
  Rooms rooms;
  Answer answer;

  void End(const absl::Status& status) {
    if (!status.ok()) return arrival.End(status);
    PutIn(rooms, &answer, arrival.metrics());
    arrival.End(std::move(answer));
  }
};

// Runs `start(job, answer, done)`, which returns the id of a call that waits.
template <typename Answer, typename Start>
ValueCalls::Cancel Begin(const std::shared_ptr<HeldJob>& job, const Arrival<Answer>& arrival,
                         absl::StatusOr<Rooms> rooms, Start start) {
  if (!rooms.ok()) return arrival.Refuse(rooms.status());
  // The job shares the call until it has ended.
  auto call = std::make_shared<Call<Answer>>(
      Call<Answer>{.arrival = arrival, .rooms = *std::move(rooms), .answer = {}});
  const std::optional<HeldJob::CallId> waits =
      start(*job, &call->answer, [call](const absl::Status& status) { call->End(status); });
  arrival.CarriedOut();
  if (!waits.has_value()) return nullptr;
  return [job, id = *waits] { job->calls().Cancel(id); };
}

}  // namespace

ValueCalls::Cancel ValueCalls::Push(TransportKind transport, const ShownCapability& shown,
                                    absl::StatusOr<PushMessage> push, Done<v1::PushResponse> done) {
  const Arrival<v1::PushResponse> arrival(&metrics_->push, transport, std::move(done));
  if (!push.ok()) return arrival.Refuse(push.status());
  const v1::Caller& caller = push->head.caller();
  const absl::StatusOr<std::shared_ptr<HeldJob>> job =
      rights_->Find(caller.job_id(), shown, UseOf(caller, CapabilityUse::Access::kWrite));
  if (!job.ok()) {
    arrival.metrics()->CountValues(BytesOf(push->values), 0);  // They have come all the same.
    return arrival.Refuse(job.status());
  }
  const absl::Status shared = TakeShared(*segments_, &*push, arrival.metrics());
  if (!shared.ok()) return arrival.Refuse(shared);
  return Begin(*job, arrival, Rooms(),
               [&](HeldJob& held, v1::PushResponse* answer, HeldJob::Done ended) {
                 return held.calls().Push(*push, answer, std::move(ended));
               });
}

ValueCalls::Cancel ValueCalls::Pull(TransportKind transport, const ShownCapability& shown,
                                    const absl::StatusOr<v1::PullRequest>& pull,
                                    Done<PullAnswer> done) {
  const Arrival<PullAnswer> arrival(&metrics_->pull, transport, std::move(done));
  if (!pull.ok()) return arrival.Refuse(pull.status());
  const v1::Caller& caller = pull->caller();
  const absl::StatusOr<std::shared_ptr<HeldJob>> job =
      rights_->Find(caller.job_id(), shown, UseOf(caller, CapabilityUse::Access::kRead));
  if (!job.ok()) return arrival.Refuse(job.status());
  return Begin(*job, arrival, RoomsOf(*segments_, *pull),
               [&](HeldJob& held, PullAnswer* answer, HeldJob::Done ended) {
                 return held.calls().Pull(*pull, answer, std::move(ended));
               });
}

}  // namespace capstan::server
