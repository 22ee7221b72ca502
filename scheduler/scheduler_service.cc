// The service itself, and the calls of and about daemons and tasks.
#include "scheduler/scheduler_service.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/gate/call_gate.h"
#include "common/security/call_policy.h"
#include "common/status/status_macros.h"
#include "scheduler/admission/job_capabilities.h"
#include "scheduler/cluster_id.h"
#include "scheduler/codec/node_codec.h"
#include "scheduler/codec/status_codec.h"
#include "scheduler/codec/task_codec.h"
#include "scheduler/cut_reactor.h"

namespace capstan::scheduler {
namespace {

constexpr absl::Duration kWaitLimitMax = absl::Minutes(1);
constexpr size_t kCountingNodesMax = 10'000;

absl::StatusOr<absl::Duration> CheckWaitLimit(int32_t wait_limit_ms) {
  const absl::Duration limit = absl::Milliseconds(wait_limit_ms);
  if (limit >= absl::ZeroDuration() && limit <= kWaitLimitMax) return limit;
  return absl::InvalidArgumentError(absl::StrCat("wait_limit_ms: ", wait_limit_ms,
                                                 ", expected 0 to ",
                                                 absl::ToInt64Milliseconds(kWaitLimitMax)));
}

bool IsLive(const SchedulerCore& core, const NodeId& node, Incarnation incarnation) {
  const std::vector<NodeView> nodes = core.Nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const NodeView& each) {
    return each.alive && each.id == node && each.incarnation == incarnation;
  });
}

}  // namespace

SchedulerService::SchedulerService(const Options& options, std::unique_ptr<DurableState> state,
                                   const std::string& cluster_id)
    : allowed_(options.allowed),
      state_(std::move(state)),
      artifacts_(options.data_folder, state_.get()),
      submission_(options.data_folder, cluster_id, allowed_, options.check_job, state_.get(),
                  &artifacts_),
      recovery_(state_.get()),
      admission_(kAdmissionsMax),
      audit_(options.audit) {}

absl::StatusOr<std::unique_ptr<SchedulerService>> SchedulerService::Open(const Options& options,
                                                                         Store* store,
                                                                         const Clock* clock) {
  CAPSTAN_ASSIGN_OR_RETURN(const StoreRows rows, store->Load());
  CAPSTAN_ASSIGN_OR_RETURN(auto state, DurableState::Open(options, rows, store, clock));
  CAPSTAN_ASSIGN_OR_RETURN(const std::string cluster_id, ClusterIdOf(*store, rows));
  return std::unique_ptr<SchedulerService>(
      new SchedulerService(options, std::move(state), cluster_id));
}

SchedulerService::~SchedulerService() { Stop(); }

void SchedulerService::Start() {
  artifacts_.RemoveLeftInitialWeights();
  admission_.Start();
  artifacts_.Start();
  state_->Start([this](FileWork work) { artifacts_.Post(std::move(work)); });
}

void SchedulerService::Stop() {
  state_->EndCalls();
  submission_.Stop();
  admission_.Stop();
  artifacts_.Stop();
  state_->Stop();
}

grpc::ServerUnaryReactor* SchedulerService::HoldUpTo(grpc::CallbackServerContext* context,
                                                     int32_t wait_limit_ms,
                                                     google::protobuf::Message* response,
                                                     const AskUpTo& ask) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<absl::Duration> limit = CheckWaitLimit(wait_limit_ms);
  if (!limit.ok()) return FinishWith(reactor, limit.status());
  absl::MutexLock lock(&state_->mutex());
  const Ticket ticket = state_->NextTicket();
  state_->Hold(ticket, {reactor, response}, [&](SchedulerCore& core, Actions& actions) {
    return ask(core, ticket, *limit, actions);
  });
  return reactor;
}

// ---------------------------------------------------------------- daemons and tasks

grpc::ServerUnaryReactor* SchedulerService::Register(grpc::CallbackServerContext* context,
                                                     const v1::RegisterRequest* request,
                                                     v1::RegisterResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const PeerRole role = request->role() == v1::SERVER ? PeerRole::kServer : PeerRole::kWorker;
  const absl::Status own = CheckCallerIs(*context, {role}, request->name());
  if (!own.ok()) return FinishWith(reactor, own);
  const absl::StatusOr<NodeInfo> info = DecodeNodeInfo(*request);
  if (!info.ok()) return FinishWith(reactor, info.status());
  if (const absl::Status logs = CheckKeptLogs(*request); !logs.ok()) {
    return FinishWith(reactor, logs);
  }
  absl::MutexLock lock(&state_->mutex());
  absl::Status status = state_->Running();
  Actions actions;
  std::vector<StoreWrite> orphans;
  if (status.ok()) {
    const auto registration = state_->core().Register(*info, state_->Now(), actions);
    status = registration.status();
    if (status.ok()) {
      EncodeRegistration(*registration, *response);
      std::set<std::string> known;
      for (const auto& [id, job] : state_->jobs()) known.insert(job->plan.unique_id);
      orphans = state_->orphans().Note(registration->node, *request, info->stored, known);
    }
  }
  state_->Commit(std::move(actions), {{reactor, status}}, std::move(orphans));
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::SyncNode(grpc::CallbackServerContext* context,
                                                     const v1::SyncNodeRequest* request,
                                                     v1::SyncNodeResponse* response) {
  const absl::Status own = CheckCallerIs(*context, kNodeRoles, request->node_id());
  if (!own.ok()) return FinishWith(context->DefaultReactor(), own);
  const absl::StatusOr<NodeReport> report = DecodeNodeReport(*request);
  if (!report.ok()) return FinishWith(context->DefaultReactor(), report.status());
  absl::MutexLock lock(&state_->mutex());
  const bool room = calls_.size() < kCountingNodesMax || calls_.contains(report->node);
  if (request->calls_size() > 0 && room) {
    calls_[report->node] = CutCallCounts(request->calls());
  }
  if (state_->Running().ok() && IsLive(state_->core(), report->node, report->incarnation)) {
    std::vector<StoreWrite> orphans =
        state_->orphans().NoteRemoved(report->node, request->removed_logs());
    if (!orphans.empty()) state_->Commit({}, {}, std::move(orphans));
  }
  const Ticket ticket = state_->NextTicket();
  grpc::ServerUnaryReactor* reactor =
      CutReactor::New([this, ticket, node = report->node, incarnation = report->incarnation] {
        SyncCut(ticket, node, incarnation);
      });
  state_->Hold(ticket, {reactor, response}, [&](SchedulerCore& core, Actions& actions) {
    return core.SyncNode(ticket, *report, state_->Now(), actions);
  });
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::SyncTask(grpc::CallbackServerContext* context,
                                                     const v1::SyncTaskRequest* request,
                                                     v1::SyncTaskResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<TaskReport> report = DecodeTaskReport(*request);
  if (!report.ok()) return FinishWith(reactor, report.status());
  absl::MutexLock lock(&state_->mutex());
  const absl::Status own =
      CheckReportsOwnTask(state_->core().jobs(), report->task, CallerOf(*context));
  if (!own.ok()) return FinishWith(reactor, own);
  if (TaskOf(state_->core().jobs(), report->task) != nullptr) {
    RenewCapability(*request, *state_->jobs().at(report->task.job), absl::Now(), response);
  }
  const Ticket ticket = state_->NextTicket();
  state_->Hold(ticket, {reactor, response}, [&](SchedulerCore& core, Actions& actions) {
    return core.SyncTask(ticket, *report, state_->Now(), actions);
  });
  return reactor;
}

// A daemon may cancel a call and send another one at once (NodeAgent::Wake), and the two may arrive
// in the wrong order. Then the second call has answered the first one, so nothing was cut.
void SchedulerService::SyncCut(Ticket ticket, const NodeId& node, Incarnation incarnation) {
  absl::MutexLock lock(&state_->mutex());
  if (!state_->Holds(ticket)) return;
  Actions actions;
  state_->core().OnSyncBroken(node, incarnation, state_->Now(), actions);
  state_->Commit(std::move(actions));
}

grpc::ServerUnaryReactor* SchedulerService::HoldConnection(grpc::CallbackServerContext* context,
                                                           const v1::HoldConnectionRequest* request,
                                                           v1::HoldConnectionResponse*) {
  const NodeId node = request->node_id();
  const Incarnation incarnation(request->incarnation());
  const absl::Status own = CheckCallerIs(*context, kNodeRoles, node);
  if (!own.ok()) return FinishWith(context->DefaultReactor(), own);
  absl::MutexLock lock(&state_->mutex());
  absl::Status status = state_->Running();
  if (status.ok() && !IsLive(state_->core(), node, incarnation)) {
    status = absl::NotFoundError(absl::StrCat("no live node \"", node, "\" of incarnation ",
                                              incarnation.value(), " to connect"));
  }
  if (!status.ok()) return FinishWith(context->DefaultReactor(), status);
  const Ticket ticket = state_->NextTicket();
  grpc::ServerUnaryReactor* reactor = CutReactor::New(
      [this, ticket, node, incarnation] { ConnectionCut(ticket, node, incarnation); });
  grpc::ServerUnaryReactor* before =
      state_->connections().Add(node, {ticket, incarnation, reactor});
  if (before != nullptr) FinishWith(before, absl::CancelledError("the node has connected anew"));
  return reactor;
}

void SchedulerService::ConnectionCut(Ticket ticket, const NodeId& node, Incarnation incarnation) {
  absl::MutexLock lock(&state_->mutex());
  grpc::ServerUnaryReactor* connection = state_->connections().TakeCut(node, ticket);
  if (connection == nullptr) return;
  Actions actions;
  state_->core().OnSyncBroken(node, incarnation, state_->Now(), actions);
  state_->Commit(std::move(actions), {{connection, absl::CancelledError("the connection is cut")}});
}

// ---------------------------------------------------------------- users, about nodes

grpc::ServerUnaryReactor* SchedulerService::ListNodes(grpc::CallbackServerContext* context,
                                                      const v1::ListNodesRequest*,
                                                      v1::ListNodesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&state_->mutex());
  const Instant now = state_->Now();
  decltype(calls_) known;
  for (const NodeView& view : state_->core().Nodes()) {
    v1::NodeStatus& node = *response->add_nodes();
    EncodeNodeStatus(view, now, node);
    const auto calls = calls_.find(view.id);
    if (calls == calls_.end()) continue;
    *node.mutable_calls() = calls->second;
    known.insert(*calls);
  }
  calls_.swap(known);
  if (audit_ != nullptr) EncodeCallCounts(*audit_, *response->mutable_scheduler_calls());
  state_->Commit({}, {{reactor, state_->Running()}});
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::DrainNode(grpc::CallbackServerContext* context,
                                                      const v1::DrainNodeRequest* request,
                                                      v1::DrainNodeResponse* response) {
  return HoldUpTo(
      context, request->wait_limit_ms(), response,
      [this, request](SchedulerCore& core, Ticket ticket, absl::Duration limit, Actions& actions) {
        return core.DrainNode(ticket, request->node_id(), request->cancel(), limit, state_->Now(),
                              actions);
      });
}

}  // namespace capstan::scheduler
