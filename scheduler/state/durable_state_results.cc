// The results of a step: the answers to calls, the events and the work on files that its actions
// ask for.
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/time/clock.h"
#include "common/observability/log.h"
#include "scheduler/admission/admitted_codec.h"
#include "scheduler/admission/job_capabilities.h"
#include "scheduler/codec/node_codec.h"
#include "scheduler/codec/task_codec.h"
#include "scheduler/state/durable_state.h"
#include "scheduler/store/job_record.h"

namespace capstan::scheduler {

void DurableState::Collect(Actions actions, Results& results) {
  for (Reply& reply : actions.replies) {
    const auto answer = [&](auto& each) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      Answer(std::move(each), results);
    };
    std::visit(answer, reply);
  }
  for (CheckpointPublish& publish : actions.publishes) {
    const std::shared_ptr<const AdmittedJob> job = jobs_.at(publish.job);
    results.files.manifests.push_back({std::move(publish), job});
  }
  results.files.removals = std::move(actions.removals);
  results.files.models = std::move(actions.models);
  CollectEvents(std::move(actions.events), results);
}

// ---------------------------------------------------------------- answers

std::shared_ptr<const AdmittedJob> DurableState::Admitted(const JobId& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : found->second;
}

v1::JobStatus DurableState::StatusOf(const JobView& view, StatusDetail detail) {
  v1::JobStatus status;
  EncodeJobStatus(view, *jobs_.at(view.id), calendar_, Now(), detail, status);
  status.set_output_host(hostname_);
  return status;
}

std::shared_ptr<const std::string> DurableState::RecordOf(const JobId& job, uint64_t number) {
  const std::shared_ptr<const AdmittedJob> admitted = Admitted(job);
  if (admitted == nullptr || core_->jobs().Find(job) == nullptr) return nullptr;
  Record& record = records_[job];
  if (record.number == number) return record.bytes;
  const bool first = record.number == 0;
  std::string bytes =
      EncodeJobRecord(*core_, job, EncodeAdmittedWithoutKey(*admitted), {Now(), absl::Now()});
  const bool fits = bytes.size() <= kJobRecordBytesMax;
  if (!fits && (first || record.bytes != nullptr)) {
    LogWarning({.job = job},
               "its servers keep no record of it, for that has {} bytes, more than {}: were this "
               "scheduler's store lost, its logs could not be used",
               bytes.size(), kJobRecordBytesMax);
  }
  record = {number, fits ? std::make_shared<const std::string>(std::move(bytes)) : nullptr};
  return record.bytes;
}

void DurableState::Answer(NodeReply reply, Results& results) {
  const std::optional<HeldCall> call = calls_.Take(reply.ticket);
  if (!call) return;
  AdmittedJobs jobs;
  JobRecords records;
  for (const TableAssignment& table : reply.tables) {
    const JobId& job = table.routing->job;
    if (auto admitted = Admitted(job)) jobs[job] = std::move(admitted);
    if (table.record == 0) continue;
    if (auto record = RecordOf(job, table.record)) records[job] = std::move(record);
  }
  for (const TaskKey& task : reply.tasks) {
    if (auto admitted = Admitted(task.job)) jobs[task.job] = std::move(admitted);
  }
  auto* const response = static_cast<v1::SyncNodeResponse*>(call->response);
  results.answers.push_back({.reactor = call->reactor,
                             .status = reply.status,
                             .fill = [reply = std::move(reply), jobs = std::move(jobs),
                                      records = std::move(records), response] {
                               EncodeNodeReply(reply, jobs, records, *response);
                               AddTaskCapabilities(jobs, absl::Now(), response);
                             }});
}

void DurableState::Answer(TaskReply reply, Results& results) {
  const std::optional<HeldCall> call = calls_.Take(reply.ticket);
  if (!call) return;
  auto* const response = static_cast<v1::SyncTaskResponse*>(call->response);
  std::shared_ptr<const AdmittedJob> job = Admitted(reply.job);
  results.answers.push_back({.reactor = call->reactor,
                             .status = reply.status,
                             // The answer says that the reported updates are in their file.
                             .after_files = job != nullptr && job->spec.output().record_updates(),
                             .fill = [job = std::move(job), reply = std::move(reply), response] {
                               if (job != nullptr) EncodeTaskReply(reply, *job, *response);
                             }});
}

void DurableState::Answer(const JobReply& reply, Results& results) {
  const std::optional<HeldCall> call = calls_.Take(reply.ticket);
  if (!call) return;
  const absl::StatusOr<JobView> view = core_->Job(reply.job, Now());
  if (view.ok()) {
    auto& response = static_cast<v1::GetJobResponse&>(*call->response);
    *response.mutable_status() = StatusOf(*view, StatusDetail::kWhole);
  }
  results.answers.push_back({call->reactor, view.status(), /*after_files=*/true});
}

void DurableState::Answer(const DrainReply& reply, Results& results) {
  const std::optional<HeldCall> call = calls_.Take(reply.ticket);
  if (!call) return;
  EncodeDrainReply(reply, static_cast<v1::DrainNodeResponse&>(*call->response));
  results.answers.push_back({call->reactor});
}

void DurableState::Answer(const CheckpointReply& reply, Results& results) {
  const std::optional<HeldCall> call = calls_.Take(reply.ticket);
  if (!call) return;
  auto& response = static_cast<v1::SaveCheckpointResponse&>(*call->response);
  response.set_checkpoint_id(reply.id.value());
  response.set_folder(reply.folder);
  response.set_host(hostname_);
  response.set_asked_id(reply.asked.value());
  results.answers.push_back({call->reactor, reply.status});
}

void DurableState::Answer(SnapshotReply reply, Results& results) {
  const std::optional<HeldCall> call = calls_.Take(reply.ticket);
  if (!call) return;
  auto* const response = static_cast<v1::OpenSnapshotResponse*>(call->response);
  results.answers.push_back(
      {.reactor = call->reactor,
       .status = reply.status,
       .fill = [job = Admitted(reply.job), reply = std::move(reply), response] {
         if (reply.routing == nullptr || job == nullptr) return;
         EncodeSnapshotReply(reply, *job, *response);
         response->set_capability(ReadCapability(*job, absl::Now()));
       }});
}

// ---------------------------------------------------------------- events

void DurableState::CollectEvents(Events events, Results& results) {
  for (Event& event : events) {
    if (const auto* left = std::get_if<JobLeft>(&event)) {
      if (const auto job = Admitted(left->job)) {
        results.files.left.push_back({job->output_directory, left->last});
        results.files.over.push_back(job);
      }
      continue;
    }
    if (const auto* died = std::get_if<NodeDied>(&event)) {
      grpc::ServerUnaryReactor* connection = connections_.TakeEnded(died->node, died->incarnation);
      if (connection != nullptr) {
        results.answers.push_back(
            {connection, absl::AbortedError("the node's incarnation is over")});
      }
    }
    if (const auto* checkpoint = std::get_if<CheckpointEnded>(&event);
        checkpoint != nullptr && !checkpoint->why.empty() && checkpoint->id != CheckpointId(0)) {
      results.files.given_up.push_back(checkpoint->folder);
    }
    RecordedEvent recorded{.event = std::move(event), .unix_ms = UnixMs()};
    const JobId* job = JobOf(recorded.event);
    if (job != nullptr) recorded.job = Admitted(*job);
    const bool ends = std::holds_alternative<JobEnded>(recorded.event);
    const bool shown = ends || std::holds_alternative<JobStarted>(recorded.event) ||
                       std::holds_alternative<JobAdopted>(recorded.event);
    if (recorded.job != nullptr && shown) {
      if (const auto view = core_->Job(*job, Now()); view.ok()) {
        recorded.status =
            std::make_shared<const v1::JobStatus>(StatusOf(*view, StatusDetail::kWhole));
        if (ends && !view->started) results.files.over.push_back(recorded.job);
      }
    }
    if (job != nullptr && ends) records_.erase(*job);
    results.events.push_back(std::move(recorded));
  }
}

}  // namespace capstan::scheduler
