#include "scheduler/scheduler_service.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net/grpc_status.h"
#include "common/status/status_macros.h"
#include "scheduler/cut_reactor.h"
#include "scheduler/node_codec.h"
#include "scheduler/shared_codec.h"
#include "scheduler/task_codec.h"

namespace capstan::scheduler {
namespace {

constexpr absl::Duration kWaitLimitMax = absl::Minutes(1);

SchedulerCore::Options CoreOptions(SchedulerCore::Options options, uint64_t life) {
  // Lives do not share incarnations: each has 2^32 of its own.
  options.first_incarnation = Incarnation(((life - 1) << 32) + 1);
  return options;
}

grpc::ServerUnaryReactor* FinishWith(grpc::ServerUnaryReactor* reactor,
                                     const absl::Status& status) {
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

absl::StatusOr<absl::Duration> CheckWaitLimit(int32_t wait_limit_ms) {
  const absl::Duration limit = absl::Milliseconds(wait_limit_ms);
  if (limit >= absl::ZeroDuration() && limit <= kWaitLimitMax) return limit;
  return absl::InvalidArgumentError(absl::StrCat("wait_limit_ms: ", wait_limit_ms,
                                                 ", expected 0 to ",
                                                 absl::ToInt64Milliseconds(kWaitLimitMax)));
}

}  // namespace

struct SchedulerService::Answers {
  struct Node {
    Call<v1::SyncNodeResponse> call;
    NodeReply reply;
  };
  struct Task {
    Call<v1::SyncTaskResponse> call;
    TaskReply reply;
  };
  struct Job {
    Call<v1::GetJobResponse> call;
    absl::Status error;  // Not ok: the rest is empty.
    v1::JobStatus status;
  };
  struct Drain {
    Call<v1::DrainNodeResponse> call;
    DrainReply reply;
  };
  std::vector<Node> nodes;
  std::vector<Task> tasks;
  std::vector<Job> jobs;
  std::vector<Drain> drains;
  std::vector<RecordedEvent> events;
  AdmittedJobs admitted;  // Of the replies.
};

SchedulerService::SchedulerService(const Options& options, CounterFile counters, const Clock* clock)
    : data_folder_(options.data_folder),
      clock_(clock),
      calendar_(clock->Now(), absl::Now()),
      admission_(kAdmissionsMax),
      output_(kOutputsMax),
      core_(CoreOptions(options.core, counters.life())),
      counters_(std::move(counters)) {}

SchedulerService::~SchedulerService() { Stop(); }

void SchedulerService::Start() {
  admission_.Start();
  output_.Start();
  timer_ = std::thread([this] { RunTimer(); });
}

void SchedulerService::Stop() {
  Calls<v1::SyncNodeResponse> node_calls;
  Calls<v1::SyncTaskResponse> task_calls;
  Calls<v1::GetJobResponse> job_calls;
  Calls<v1::DrainNodeResponse> drain_calls;
  absl::Status stopped;
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    stopped = Running();
    node_calls.swap(node_calls_);
    task_calls.swap(task_calls_);
    job_calls.swap(job_calls_);
    drain_calls.swap(drain_calls_);
    timer_changed_.Signal();
  }
  for (const auto& [ticket, call] : node_calls) FinishWith(call.reactor, stopped);
  for (const auto& [ticket, call] : task_calls) FinishWith(call.reactor, stopped);
  for (const auto& [ticket, call] : job_calls) FinishWith(call.reactor, stopped);
  for (const auto& [ticket, call] : drain_calls) FinishWith(call.reactor, stopped);
  if (timer_.joinable()) timer_.join();
  admission_.Stop();
  output_.Stop();
}

absl::Status SchedulerService::Running() const {
  return stopped_ ? absl::UnavailableError("the scheduler is shutting down") : absl::OkStatus();
}

Ticket SchedulerService::NextTicket() { return Ticket(next_ticket_++); }

// ---------------------------------------------------------------- the core's actions

v1::JobStatus SchedulerService::StatusOf(const JobView& view, StatusDetail detail) {
  v1::JobStatus status;
  EncodeJobStatus(view, *jobs_.at(view.id), calendar_, clock_->Now(), detail, status);
  return status;
}

void SchedulerService::CollectEvents(Events events, Answers& answers) {
  bool ended = false;
  for (Event& event : events) {
    RecordedEvent recorded{.event = std::move(event), .unix_ms = calendar_.UnixMs(clock_->Now())};
    const JobId* job = JobOf(recorded.event);
    const auto known = job == nullptr ? jobs_.end() : jobs_.find(*job);
    if (known != jobs_.end()) recorded.job = known->second;
    const bool ends = std::holds_alternative<JobEnded>(recorded.event);
    ended = ended || ends;
    if (recorded.job != nullptr && (ends || std::holds_alternative<JobStarted>(recorded.event))) {
      if (const auto view = core_.Job(*job, clock_->Now()); view.ok()) {
        recorded.status =
            std::make_shared<const v1::JobStatus>(StatusOf(*view, StatusDetail::kWhole));
      }
    }
    answers.events.push_back(std::move(recorded));
  }
  if (!ended) return;
  absl::erase_if(jobs_, [this](const auto& entry) { return !core_.HasJob(entry.first); });
}

SchedulerService::Answers SchedulerService::Collect(Actions actions) {
  Answers answers;
  const auto needs = [&](const JobId& job) {
    if (const auto it = jobs_.find(job); it != jobs_.end()) answers.admitted.insert(*it);
  };
  for (NodeReply& reply : actions.node_replies) {
    const auto call = node_calls_.extract(reply.ticket);
    if (call.empty()) continue;
    for (const TableAssignment& table : reply.tables) needs(table.routing->job);
    for (const TaskKey& task : reply.tasks) needs(task.job);
    answers.nodes.push_back({call.mapped(), std::move(reply)});
  }
  for (TaskReply& reply : actions.task_replies) {
    const auto call = task_calls_.extract(reply.ticket);
    if (call.empty()) continue;
    needs(reply.job);
    answers.tasks.push_back({call.mapped(), std::move(reply)});
  }
  for (const JobReply& reply : actions.job_replies) {
    const auto call = job_calls_.extract(reply.ticket);
    if (call.empty()) continue;
    const absl::StatusOr<JobView> view = core_.Job(reply.job, clock_->Now());
    Answers::Job answer{call.mapped(), view.status(), {}};
    if (view.ok()) answer.status = StatusOf(*view, StatusDetail::kWhole);
    answers.jobs.push_back(std::move(answer));
  }
  for (DrainReply& reply : actions.drain_replies) {
    const auto call = drain_calls_.extract(reply.ticket);
    if (!call.empty()) answers.drains.push_back({call.mapped(), std::move(reply)});
  }
  CollectEvents(std::move(actions.events), answers);
  if (core_.NextDeadline() < timer_deadline_) timer_changed_.Signal();
  return answers;
}

void SchedulerService::Perform(Answers answers) {
  if (!answers.events.empty()) {
    output_.Post([this, events = std::move(answers.events)] {
      for (const RecordedEvent& event : events) recorder_.Record(event);
    });
  }
  for (const Answers::Node& node : answers.nodes) {
    if (node.reply.status.ok()) EncodeNodeReply(node.reply, answers.admitted, *node.call.response);
    FinishWith(node.call.reactor, node.reply.status);
  }
  for (const Answers::Task& task : answers.tasks) {
    const auto job = answers.admitted.find(task.reply.job);
    if (task.reply.status.ok() && job != answers.admitted.end()) {
      EncodeTaskReply(task.reply, *job->second, *task.call.response);
    }
    FinishWith(task.call.reactor, task.reply.status);
  }
  for (const Answers::Drain& drain : answers.drains) {
    EncodeDrainReply(drain.reply, *drain.call.response);
    FinishWith(drain.call.reactor, absl::OkStatus());
  }
  if (answers.jobs.empty()) return;
  output_.Post([jobs = std::move(answers.jobs)] {
    for (const Answers::Job& job : jobs) {
      if (job.error.ok()) *job.call.response->mutable_status() = job.status;
      FinishWith(job.call.reactor, job.error);
    }
  });
}

void SchedulerService::RunTimer() {
  while (true) {
    Answers answers;
    {
      absl::MutexLock lock(&mutex_);
      while (!stopped_) {
        timer_deadline_ = core_.NextDeadline();
        const absl::Duration left = timer_deadline_ - clock_->Now();
        if (left <= absl::ZeroDuration()) break;
        timer_changed_.WaitWithTimeout(&mutex_, left);
      }
      if (stopped_) return;
      Actions actions;
      core_.Tick(clock_->Now(), actions);
      answers = Collect(std::move(actions));
    }
    Perform(std::move(answers));
  }
}

// ---------------------------------------------------------------- daemons and tasks

grpc::ServerUnaryReactor* SchedulerService::Register(grpc::CallbackServerContext* context,
                                                     const v1::RegisterRequest* request,
                                                     v1::RegisterResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<NodeInfo> info = DecodeNodeInfo(*request);
  if (!info.ok()) return FinishWith(reactor, info.status());
  absl::Status status;
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    status = Running();
    if (status.ok()) {
      Actions actions;
      const auto registration = core_.Register(*info, clock_->Now(), actions);
      status = registration.status();
      if (status.ok()) EncodeRegistration(*registration, *response);
      answers = Collect(std::move(actions));
    }
  }
  Perform(std::move(answers));
  return FinishWith(reactor, status);
}

// A daemon that cancels a call and sends another at once (NodeAgent::Wake) may be heard in the
// wrong order: then the call was answered when the other came, and nothing is cut.
void SchedulerService::SyncCut(Ticket ticket, const NodeId& node, Incarnation incarnation) {
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    if (!node_calls_.contains(ticket)) return;
    Actions actions;
    core_.OnSyncBroken(node, incarnation, clock_->Now(), actions);
    answers = Collect(std::move(actions));
  }
  Perform(std::move(answers));
}

grpc::ServerUnaryReactor* SchedulerService::SyncNode(grpc::CallbackServerContext* context,
                                                     const v1::SyncNodeRequest* request,
                                                     v1::SyncNodeResponse* response) {
  const absl::StatusOr<NodeReport> report = DecodeNodeReport(*request);
  if (!report.ok()) return FinishWith(context->DefaultReactor(), report.status());
  absl::Status status;
  Answers answers;
  grpc::ServerUnaryReactor* reactor = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    const Ticket ticket = NextTicket();
    reactor = CutReactor::New([this, ticket, node = report->node, life = report->incarnation] {
      SyncCut(ticket, node, life);
    });
    status = Running();
    if (status.ok()) {
      node_calls_[ticket] = {reactor, response};
      Actions actions;
      status = core_.SyncNode(ticket, *report, clock_->Now(), actions);
      if (!status.ok()) node_calls_.erase(ticket);
      answers = Collect(std::move(actions));
    }
  }
  Perform(std::move(answers));
  return status.ok() ? reactor : FinishWith(reactor, status);
}

grpc::ServerUnaryReactor* SchedulerService::SyncTask(grpc::CallbackServerContext* context,
                                                     const v1::SyncTaskRequest* request,
                                                     v1::SyncTaskResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<TaskReport> report = DecodeTaskReport(*request);
  if (!report.ok()) return FinishWith(reactor, report.status());
  absl::Status status;
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    status = Running();
    if (status.ok()) {
      const Ticket ticket = NextTicket();
      task_calls_[ticket] = {reactor, response};
      Actions actions;
      status = core_.SyncTask(ticket, *report, clock_->Now(), actions);
      if (!status.ok()) task_calls_.erase(ticket);
      answers = Collect(std::move(actions));
    }
  }
  Perform(std::move(answers));
  return status.ok() ? reactor : FinishWith(reactor, status);
}

// ---------------------------------------------------------------- users

grpc::ServerUnaryReactor* SchedulerService::SubmitJob(grpc::CallbackServerContext* context,
                                                      const v1::SubmitJobRequest* request,
                                                      v1::SubmitJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const absl::Status status = CheckProtocolVersion(request->protocol_version()); !status.ok()) {
    return FinishWith(reactor, status);
  }
  const Call<v1::SubmitJobResponse> call{reactor, response};
  if (admission_.TryPost([this, request, call] { Admit(*request, call); })) return reactor;
  return FinishWith(
      reactor, absl::ResourceExhaustedError(absl::StrCat("more than ", kAdmissionsMax,
                                                         " jobs wait to be checked; try again")));
}

void SchedulerService::Admit(const v1::SubmitJobRequest& request,
                             const Call<v1::SubmitJobResponse>& call) {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    status = Running();
  }
  if (status.ok()) {
    absl::StatusOr<AdmittedJob> job = AdmitJob(request.spec());
    status = job.ok() ? Submit(*std::move(job), call.response) : job.status();
  }
  FinishWith(call.reactor, status);
}

absl::Status SchedulerService::Submit(AdmittedJob job, v1::SubmitJobResponse* response) {
  uint64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    CAPSTAN_RETURN_IF_ERROR(Running());
    CAPSTAN_ASSIGN_OR_RETURN(number, counters_.NextJob());
  }
  CAPSTAN_RETURN_IF_ERROR(NameJob(number, data_folder_, job));
  const JobId id = job.plan.id;
  auto admitted = std::make_shared<const AdmittedJob>(std::move(job));
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    CAPSTAN_RETURN_IF_ERROR(Running());
    jobs_[id] = admitted;
    Actions actions;
    if (absl::Status status = core_.SubmitJob(admitted->plan, clock_->Now(), actions);
        !status.ok()) {
      jobs_.erase(id);
      return status;
    }
    answers = Collect(std::move(actions));
  }
  Perform(std::move(answers));
  response->set_job_id(id);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* SchedulerService::ListJobs(grpc::CallbackServerContext* context,
                                                     const v1::ListJobsRequest*,
                                                     v1::ListJobsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    status = Running();
    for (const JobView& view : core_.Jobs(clock_->Now())) {
      *response->add_jobs() = StatusOf(view, StatusDetail::kList);
    }
  }
  output_.Post([reactor, status] { FinishWith(reactor, status); });
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::GetJob(grpc::CallbackServerContext* context,
                                                   const v1::GetJobRequest* request,
                                                   v1::GetJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<absl::Duration> limit = CheckWaitLimit(request->wait_limit_ms());
  if (!limit.ok()) return FinishWith(reactor, limit.status());
  absl::Status status;
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    status = Running();
    if (status.ok()) {
      const Ticket ticket = NextTicket();
      job_calls_[ticket] = {reactor, response};
      Actions actions;
      status = core_.WatchJob(ticket, request->job_id(), request->after_revision(), *limit,
                              clock_->Now(), actions);
      if (!status.ok()) job_calls_.erase(ticket);
      answers = Collect(std::move(actions));
    }
  }
  Perform(std::move(answers));
  return status.ok() ? reactor : FinishWith(reactor, status);
}

grpc::ServerUnaryReactor* SchedulerService::StopJob(grpc::CallbackServerContext* context,
                                                    const v1::StopJobRequest* request,
                                                    v1::StopJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::Status status;
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    status = Running();
    if (status.ok()) {
      Actions actions;
      const auto state = core_.StopJob(request->job_id(), clock_->Now(), actions);
      status = state.status();
      if (status.ok()) response->set_state(EncodeJobState(*state));
      answers = Collect(std::move(actions));
    }
  }
  Perform(std::move(answers));
  output_.Post([reactor, status] { FinishWith(reactor, status); });
  return reactor;
}

grpc::ServerUnaryReactor* SchedulerService::ListNodes(grpc::CallbackServerContext* context,
                                                      const v1::ListNodesRequest*,
                                                      v1::ListNodesResponse* response) {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    status = Running();
    const Instant now = clock_->Now();
    for (const NodeView& view : core_.Nodes()) EncodeNodeStatus(view, now, *response->add_nodes());
  }
  return FinishWith(context->DefaultReactor(), status);
}

grpc::ServerUnaryReactor* SchedulerService::DrainNode(grpc::CallbackServerContext* context,
                                                      const v1::DrainNodeRequest* request,
                                                      v1::DrainNodeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<absl::Duration> limit = CheckWaitLimit(request->wait_limit_ms());
  if (!limit.ok()) return FinishWith(reactor, limit.status());
  absl::Status status;
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    status = Running();
    if (status.ok()) {
      const Ticket ticket = NextTicket();
      drain_calls_[ticket] = {reactor, response};
      Actions actions;
      status = core_.DrainNode(ticket, request->node_id(), request->cancel(), *limit, clock_->Now(),
                               actions);
      if (!status.ok()) drain_calls_.erase(ticket);
      answers = Collect(std::move(actions));
    }
  }
  Perform(std::move(answers));
  return status.ok() ? reactor : FinishWith(reactor, status);
}

grpc::ServerUnaryReactor* SchedulerService::GetTables(grpc::CallbackServerContext* context,
                                                      const v1::GetTablesRequest* request,
                                                      v1::GetTablesResponse* response) {
  std::shared_ptr<const AdmittedJob> job;
  absl::StatusOr<std::shared_ptr<const Routing>> routing;
  {
    absl::MutexLock lock(&mutex_);
    routing = core_.RoutingOf(request->job_id());
    if (routing.ok()) job = jobs_.at(request->job_id());
    if (const absl::Status status = Running(); !status.ok()) routing = status;
  }
  if (routing.ok()) {
    for (const v1::TableSpec& table : job->tables) *response->add_tables() = table;
    EncodeRouting(**routing, *response->mutable_routing());
  }
  return FinishWith(context->DefaultReactor(), routing.status());
}

}  // namespace capstan::scheduler
