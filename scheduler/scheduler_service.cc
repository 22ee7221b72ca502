#include "scheduler/scheduler_service.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net/grpc_status.h"
#include "common/observability/log.h"
#include "common/process/random_hex.h"
#include "common/status/status_macros.h"
#include "common/tensor/staged_model.h"
#include "common/types/staging.h"
#include "scheduler/admitted_codec.h"
#include "scheduler/cluster_id.h"
#include "scheduler/job_checkpoint.h"
#include "scheduler/node_codec.h"
#include "scheduler/scheduler_service_answers.h"
#include "scheduler/store/state_codec.h"
#include "scheduler/task_codec.h"

namespace capstan::scheduler {
namespace {

void FinishWith(grpc::ServerUnaryReactor* reactor, const absl::Status& status) {
  reactor->Finish(ToGrpcStatus(status));
}

// The answer is always kUnavailable, which means "ask again": the call may or may not have taken
// effect.
absl::Status NotDurable(const absl::Status& failure) {
  if (absl::IsUnavailable(failure)) return failure;
  return absl::UnavailableError(
      absl::StrCat("the scheduler cannot write its state: ", std::string(failure.message())));
}

// The first scheduler of a cluster counts incarnations from the calendar's milliseconds. If an
// earlier store was lost, tasks and files of the earlier cluster may be left, and their numbers
// must not occur again. The scheduler's own number is random, because calendars differ between
// hosts.
SchedulerCore::Options CountingFrom(absl::Time wall, SchedulerCore::Options options) {
  const int64_t unix_ms = std::max<int64_t>(0, absl::ToUnixMillis(wall));
  options.first_incarnation =
      std::max(options.first_incarnation, Incarnation(static_cast<uint64_t>(unix_ms)));
  while (!absl::SimpleHexAtoi(RandomHex(), &options.number) || options.number == 0) {
  }
  return options;
}

}  // namespace

SchedulerService::SchedulerService(const Options& options, Store* store, const Clock* clock,
                                   std::string cluster_id, std::unique_ptr<SchedulerCore> core,
                                   AdmittedJobs jobs, OrphanedLogs orphans)
    : data_folder_(options.data_folder),
      hostname_(options.hostname),
      cluster_id_(std::move(cluster_id)),
      on_fatal_(options.on_fatal),
      on_forgotten_(options.on_forgotten),
      clock_(clock),
      calendar_(clock->Now(), absl::Now()),
      admission_(kAdmissionsMax),
      output_(kOutputsMax),
      manifests_(kManifestsMax),
      commits_(store, [this](const absl::Status& failure) { OnCommitFailure(failure); }),
      core_(std::move(core)),
      jobs_(std::move(jobs)),
      orphans_(std::move(orphans)) {}

absl::StatusOr<std::unique_ptr<SchedulerService>> SchedulerService::Open(const Options& options,
                                                                         Store* store,
                                                                         const Clock* clock) {
  CAPSTAN_ASSIGN_OR_RETURN(const StoreRows rows, store->Load());
  CAPSTAN_ASSIGN_OR_RETURN(AdmittedJobs jobs, DecodeAdmitted(rows));
  CAPSTAN_ASSIGN_OR_RETURN(OrphanedLogs orphans, OrphanedLogs::Load(rows));
  Actions actions;
  const Moment moment{clock->Now(), absl::Now()};
  CAPSTAN_ASSIGN_OR_RETURN(
      auto core, RestoreCore(rows, CountingFrom(moment.wall, options.core), moment, actions));
  for (const JobView& job : core->Jobs(moment.now)) {
    if (jobs.contains(job.id)) continue;
    return absl::DataLossError(absl::StrCat("the store has no specification of ", job.id));
  }
  CAPSTAN_ASSIGN_OR_RETURN(std::string cluster_id, ClusterIdOf(*store, rows));
  std::unique_ptr<SchedulerService> service(
      new SchedulerService(options, store, clock, std::move(cluster_id), std::move(core),
                           std::move(jobs), std::move(orphans)));
  absl::MutexLock lock(&service->mutex_);
  service->restored_ = std::move(actions);
  return service;
}

SchedulerService::~SchedulerService() { Stop(); }

void SchedulerService::Start() {
  admission_.Start();
  output_.Start();
  manifests_.Start();
  commits_.Start();
  {
    absl::MutexLock lock(&mutex_);
    CompleteFiles();
    Commit(std::exchange(restored_, {}), {});
  }
  timer_ = std::thread([this] { RunTimer(); });
}

void SchedulerService::Stop() {
  std::vector<HeldCall> calls;
  absl::btree_map<NodeId, Tie> ties;
  absl::Status stopped;
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    stopped = Running();
    calls = calls_.TakeAll();
    ties.swap(ties_);
    timer_changed_.Signal();
  }
  for (const HeldCall& call : calls) FinishWith(call.reactor, stopped);
  for (const auto& [node, tie] : ties) FinishWith(tie.reactor, stopped);
  if (timer_.joinable()) timer_.join();
  admission_.Stop();
  manifests_.Stop();
  commits_.Stop();
  output_.Stop();
}

absl::Status SchedulerService::Running() const {
  if (stopped_) return absl::UnavailableError("the scheduler is shutting down");
  return failure_.ok() ? absl::OkStatus() : NotDurable(failure_);
}

void SchedulerService::OnCommitFailure(const absl::Status& failure) {
  {
    absl::MutexLock lock(&mutex_);
    failure_ = failure;
  }
  if (on_fatal_) on_fatal_(failure);
}

// A scheduler may have died between the end of a job and the last write of its files. If several
// jobs wrote into one folder, it holds the files of the last one, so only those are completed.
void SchedulerService::CompleteFiles() {
  const std::vector<JobView> views = core_->Jobs(clock_->Now());
  absl::btree_map<std::string, JobId> last;
  for (const JobView& view : views) {
    if (view.started) last[jobs_.at(view.id)->plan.folders.output] = view.id;
  }
  for (const JobView& view : views) {
    if (!view.ended || !view.started) continue;
    if (last.at(jobs_.at(view.id)->plan.folders.output) != view.id) continue;
    output_.Post([this, job = jobs_.at(view.id), status = StatusOf(view, StatusDetail::kWhole)] {
      recorder_.Complete(*job, status);
    });
  }
}

// ---------------------------------------------------------------- the core's actions

v1::JobStatus SchedulerService::StatusOf(const JobView& view, StatusDetail detail) {
  v1::JobStatus status;
  EncodeJobStatus(view, *jobs_.at(view.id), calendar_, clock_->Now(), detail, status);
  status.set_output_host(hostname_);
  return status;
}

void SchedulerService::CollectEvents(Events events, Answers& answers) {
  for (Event& event : events) {
    if (const auto* left = std::get_if<JobLeft>(&event)) {
      if (const auto job = jobs_.find(left->job); job != jobs_.end()) {
        answers.left.push_back({job->second->output_directory, left->last});
        answers.over.push_back(job->second);
      }
      continue;
    }
    if (const auto* died = std::get_if<NodeDied>(&event)) {
      EndTie(died->node, died->incarnation, answers);
    }
    if (const auto* checkpoint = std::get_if<CheckpointEnded>(&event);
        checkpoint != nullptr && !checkpoint->why.empty() && checkpoint->id != CheckpointId(0)) {
      answers.given_up.push_back(checkpoint->folder);
    }
    RecordedEvent recorded{.event = std::move(event), .unix_ms = calendar_.UnixMs(clock_->Now())};
    const JobId* job = JobOf(recorded.event);
    const auto known = job == nullptr ? jobs_.end() : jobs_.find(*job);
    if (known != jobs_.end()) recorded.job = known->second;
    const bool ends = std::holds_alternative<JobEnded>(recorded.event);
    const bool shown = ends || std::holds_alternative<JobStarted>(recorded.event) ||
                       std::holds_alternative<JobAdopted>(recorded.event);
    if (recorded.job != nullptr && shown) {
      if (const auto view = core_->Job(*job, clock_->Now()); view.ok()) {
        recorded.status =
            std::make_shared<const v1::JobStatus>(StatusOf(*view, StatusDetail::kWhole));
        if (ends && !view->started) answers.over.push_back(recorded.job);
      }
    }
    if (job != nullptr && ends) records_.erase(*job);
    answers.events.push_back(std::move(recorded));
  }
}

template <typename Response, typename Reply, typename Encode>
void SchedulerService::AnswerLater(Reply reply, Answers& answers, const Encode& encode) {
  const std::optional<HeldCall> call = calls_.Take(reply.ticket);
  if (!call) return;
  const absl::Status status = reply.status;
  auto* const response = static_cast<Response*>(call->response);
  answers.answers.push_back({.reactor = call->reactor,
                             .status = status,
                             .fill = [reply = std::move(reply), response, encode](
                                         const Answers& all) { encode(reply, all, *response); }});
}

void SchedulerService::Answer(NodeReply reply, Answers& answers) {
  if (!calls_.Has(reply.ticket)) return;
  for (const TableAssignment& table : reply.tables) {
    const JobId& job = table.routing->job;
    answers.Need(job, jobs_);
    if (table.record == 0) continue;
    if (auto record = RecordOf(job, table.record)) answers.records[job] = std::move(record);
  }
  for (const TaskKey& task : reply.tasks) answers.Need(task.job, jobs_);
  AnswerLater<v1::SyncNodeResponse>(
      std::move(reply), answers,
      [](const NodeReply& said, const Answers& all, v1::SyncNodeResponse& response) {
        EncodeNodeReply(said, all.admitted, all.records, response);
      });
}

void SchedulerService::Answer(TaskReply reply, Answers& answers) {
  answers.Need(reply.job, jobs_);
  AnswerLater<v1::SyncTaskResponse>(
      std::move(reply), answers,
      [](const TaskReply& said, const Answers& all, v1::SyncTaskResponse& response) {
        const auto job = all.admitted.find(said.job);
        if (job != all.admitted.end()) EncodeTaskReply(said, *job->second, response);
      });
}

void SchedulerService::Answer(const JobReply& reply, Answers& answers) {
  const std::optional<HeldCall> call = calls_.Take(reply.ticket);
  if (!call) return;
  const absl::StatusOr<JobView> view = core_->Job(reply.job, clock_->Now());
  if (view.ok()) {
    auto& response = static_cast<v1::GetJobResponse&>(*call->response);
    *response.mutable_status() = StatusOf(*view, StatusDetail::kWhole);
  }
  answers.answers.push_back({call->reactor, view.status(), /*after_files=*/true});
}

void SchedulerService::Answer(const DrainReply& reply, Answers& answers) {
  const std::optional<HeldCall> call = calls_.Take(reply.ticket);
  if (!call) return;
  EncodeDrainReply(reply, static_cast<v1::DrainNodeResponse&>(*call->response));
  answers.answers.push_back({call->reactor});
}

void SchedulerService::Answer(const CheckpointReply& reply, Answers& answers) {
  const std::optional<HeldCall> call = calls_.Take(reply.ticket);
  if (!call) return;
  auto& response = static_cast<v1::SaveCheckpointResponse&>(*call->response);
  response.set_checkpoint_id(reply.id.value());
  response.set_folder(reply.folder);
  response.set_host(hostname_);
  response.set_asked_id(reply.asked.value());
  answers.answers.push_back({call->reactor, reply.status});
}

void SchedulerService::Answer(SnapshotReply reply, Answers& answers) {
  answers.Need(reply.job, jobs_);
  AnswerLater<v1::OpenSnapshotResponse>(
      std::move(reply), answers,
      [](const SnapshotReply& said, const Answers& all, v1::OpenSnapshotResponse& response) {
        const auto job = all.admitted.find(said.job);
        if (said.routing == nullptr || job == all.admitted.end()) return;
        EncodeSnapshotReply(said, *job->second, response);
      });
}

void SchedulerService::Collect(Actions actions, Answers& answers) {
  for (NodeReply& reply : actions.node_replies) Answer(std::move(reply), answers);
  for (TaskReply& reply : actions.task_replies) Answer(std::move(reply), answers);
  for (const JobReply& reply : actions.job_replies) Answer(reply, answers);
  for (const DrainReply& reply : actions.drain_replies) Answer(reply, answers);
  for (const CheckpointReply& reply : actions.checkpoint_replies) Answer(reply, answers);
  for (SnapshotReply& reply : actions.snapshot_replies) Answer(std::move(reply), answers);
  for (CheckpointPublish& publish : actions.publishes) {
    const std::shared_ptr<const AdmittedJob> job = jobs_.at(publish.job);
    answers.manifests.push_back({std::move(publish), job});
  }
  answers.removals = std::move(actions.removals);
  answers.models = std::move(actions.models);
  CollectEvents(std::move(actions.events), answers);
}

void SchedulerService::Commit(Actions actions, Answers answers, std::vector<StoreWrite> also) {
  std::vector<StoreWrite> writes =
      EncodeChanges(*core_, actions.changes, {clock_->Now(), absl::Now()});
  for (const JobId& job : actions.changes.forgotten) writes.push_back(ForgetAdmitted(job));
  for (StoreWrite& write : also) writes.push_back(std::move(write));
  answers.forgotten = actions.changes.forgotten;
  Collect(std::move(actions), answers);
  for (const JobId& job : answers.forgotten) {
    jobs_.erase(job);
    records_.erase(job);
  }
  if (core_->NextDeadline() < timer_deadline_) timer_changed_.Signal();
  const auto said = std::make_shared<Answers>(std::move(answers));
  commits_.Push(std::move(writes),
                [this, said](const absl::Status& durable) { Perform(*said, durable); });
}

void SchedulerService::Refuse(const Answers& answers, const absl::Status& why) {
  for (const Answers::Answer& answer : answers.answers) FinishWith(answer.reactor, why);
}

// Queues the work on the disk, and reports forgotten jobs.
void SchedulerService::PostFileWork(Answers& answers) {
  for (Answers::Manifest& manifest : answers.manifests) {
    manifests_.Post([this, what = std::move(manifest)] { Publish(what.publish, *what.job); });
  }
  if (on_forgotten_) {
    for (const JobId& job : answers.forgotten) on_forgotten_(job);
  }
  for (const std::string& folder : answers.given_up) {
    manifests_.Post([this, folder] { RemoveGivenUpIn(folder); });
  }
  for (const JobId& job : answers.removals) {
    manifests_.Post([this, job] { RemoveCheckpointsOf(job); });
  }
  for (ModelPublish& model : answers.models) {
    manifests_.Post([this, what = std::move(model)] { Publish(what); });
  }
  for (const std::shared_ptr<const AdmittedJob>& job : answers.over) {
    manifests_.Post([this, job] { RemoveInitialValues(*job); });
  }
  if (!answers.left.empty()) {
    manifests_.Post([left = std::move(answers.left)] {
      for (const Answers::Left& each : left) RemoveStagedModelsUpTo(each.last_life, each.folder);
    });
  }
}

void SchedulerService::Perform(Answers& answers, const absl::Status& durable) {
  if (!durable.ok()) return Refuse(answers, NotDurable(durable));
  if (!answers.events.empty()) {
    output_.Post([this, events = std::move(answers.events)] {
      for (const RecordedEvent& event : events) recorder_.Record(event);
    });
  }
  PostFileWork(answers);
  for (Answers::Answer& answer : answers.answers) {
    if (answer.status.ok() && answer.fill) answer.fill(answers);
    if (answer.after_files) {
      output_.Post([reactor = answer.reactor, status = std::move(answer.status)] {
        FinishWith(reactor, status);
      });
    } else {
      FinishWith(answer.reactor, answer.status);
    }
  }
}

void SchedulerService::Publish(const CheckpointPublish& publish, const AdmittedJob& job) {
  {
    absl::MutexLock lock(&mutex_);
    if (!Running().ok()) return;  // The next scheduler publishes it.
  }
  const int64_t unix_ms = calendar_.UnixMs(clock_->Now());
  const absl::Status status = PublishCheckpoint(disk_, publish, job, unix_ms);
  disk_.Remove(absl::StrCat(publish.folder, "/", kFolderMark)).IgnoreError();  // No longer needed.
  absl::MutexLock lock(&mutex_);
  Actions actions;
  core_->CheckpointPublished(publish.job, publish.id, status, clock_->Now(), actions);
  Commit(std::move(actions), {});
}

void SchedulerService::RemoveGivenUpIn(const std::string& folder) {
  absl::MutexLock removing(&removal_mutex_);
  const absl::Status removed = RemoveGivenUp(disk_, folder);
  if (removed.ok()) return;
  LogWarning({}, "what is left of a checkpoint that was given up stays: {}",
             std::string(removed.message()));
}

void SchedulerService::RemoveCheckpointsOf(const JobId& job) {
  absl::MutexLock removing(&removal_mutex_);
  CheckpointRemoval removal;
  {
    absl::MutexLock lock(&mutex_);
    if (!Running().ok()) return;  // The next complete checkpoint removes them.
    removal = core_->CheckpointsToRemove(job);
  }
  RemoveCheckpoints(disk_, removal);
}

// One thread moves all models, so that a model which was begun later also replaces the earlier one.
void SchedulerService::Publish(const ModelPublish& publish) {
  // While the core awaits this model, no other task exports. All other staged models are from dead
  // tasks.
  const std::vector<StagedModel> staged = StagedModelsIn(publish.folder);
  {
    absl::MutexLock lock(&mutex_);
    if (!Running().ok() || !core_->AwaitsModel(publish.exporter)) return;
  }
  const absl::Status status = PublishModel(publish.staged, publish.folder, publish.exporter.job,
                                           publish.exporter.incarnation);
  if (status.ok()) {
    for (const StagedModel& left : staged) RemoveStagedModel(left.path);
  }
  absl::MutexLock lock(&mutex_);
  Actions actions;
  core_->ModelPublished(publish.exporter, status, clock_->Now(), actions);
  Commit(std::move(actions), {});
}

bool SchedulerService::MayWriteInto(const std::string& folder) {
  absl::MutexLock lock(&mutex_);
  return Running().ok() && core_->MayWriteInto(folder);
}

bool SchedulerService::HasJob(const JobId& job) {
  absl::MutexLock lock(&mutex_);
  return core_->HasJob(job);
}

bool SchedulerService::MayReadFrom(const std::string& folder) {
  absl::MutexLock lock(&mutex_);
  return Running().ok() && core_->MayReadFrom(folder);
}

void SchedulerService::RunTimer() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    while (!stopped_) {
      timer_deadline_ = core_->NextDeadline();
      const absl::Duration left = timer_deadline_ - clock_->Now();
      if (left <= absl::ZeroDuration()) break;
      timer_changed_.WaitWithTimeout(&mutex_, left);
    }
    if (stopped_) return;
    Actions actions;
    core_->Tick(clock_->Now(), actions);
    Commit(std::move(actions), {});
  }
}

}  // namespace capstan::scheduler
