// The calls that list and recover jobs of another cluster, whose scheduler has lost its store.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/net/grpc_status.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"
#include "scheduler/admitted_codec.h"
#include "scheduler/scheduler_service.h"
#include "scheduler/scheduler_service_answers.h"
#include "scheduler/shared_codec.h"
#include "scheduler/store/state_codec.h"

namespace capstan::scheduler {
namespace {

// Returns the only job in `record`.
absl::StatusOr<AdmittedJob> JobIn(const JobRecord& record) {
  CAPSTAN_ASSIGN_OR_RETURN(const AdmittedJobs jobs, DecodeAdmitted(record.rows));
  const auto job = jobs.find(record.job);
  if (job != jobs.end() && job->second->plan.unique_id == record.unique_id) return *job->second;
  return absl::DataLossError(
      absl::StrCat("the record of ", record.job, " does not have its specification"));
}

Adoption AdoptionOf(const JobRecord& record, const OrphanedJob& orphan) {
  Adoption adoption{.job = record.job, .cluster = ClusterIn(record.unique_id)};
  adoption.record_age =
      std::max(absl::ZeroDuration(), absl::Now() - absl::FromUnixMillis(record.unix_ms));
  for (const auto& [node, log] : orphan.logs) adoption.stored[node] = log.shards;
  return adoption;
}

}  // namespace

std::shared_ptr<const std::string> SchedulerService::RecordOf(const JobId& job, uint64_t number) {
  const auto admitted = jobs_.find(job);
  if (admitted == jobs_.end() || !core_->HasJob(job)) return nullptr;
  Record& record = records_[job];
  if (record.number == number) return record.bytes;
  const bool first = record.number == 0;
  std::string bytes =
      EncodeJobRecord(*core_, job, EncodeAdmitted(*admitted->second), {clock_->Now(), absl::Now()});
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

// ---------------------------------------------------------------- listing

absl::Status SchedulerService::WouldRecover(const OrphanedJob& orphan) {
  CAPSTAN_RETURN_IF_ERROR(orphan.record.status());
  CAPSTAN_ASSIGN_OR_RETURN(const AdmittedJob job, JobIn(*orphan.record));
  const Instant now = clock_->Now();
  CAPSTAN_RETURN_IF_ERROR(core_->MayAdopt(job.plan, now));
  CAPSTAN_RETURN_IF_ERROR(LoadJob(orphan.record->rows, job.plan.id, {now, absl::Now()}, *core_));
  Adoption adoption = AdoptionOf(*orphan.record, orphan);
  adoption.only_check = true;
  Actions none;
  return core_->Adopt(adoption, now, none);
}

v1::RecoverableJob SchedulerService::Describe(const std::string& unique_id,
                                              const OrphanedJob& orphan) {
  v1::RecoverableJob job;
  job.set_job_id(orphan.id);
  job.set_unique_id(unique_id);
  job.set_cluster_id(ClusterIn(unique_id));
  if (orphan.record.ok()) {
    job.set_record_unix_ms(orphan.record->unix_ms);
    job.set_stood(orphan.record->stood);
  }
  std::string why_not(WouldRecover(orphan).message());
  const std::vector<NodeView> nodes = core_->Nodes();
  for (const auto& [node, kept] : orphan.logs) {
    v1::RecoverableLog& log = *job.add_logs();
    log.set_node_id(node);
    log.set_shards(static_cast<int>(kept.shards.size()));
    log.set_damage(kept.damage);
    const auto view = std::find_if(nodes.begin(), nodes.end(),
                                   [&](const NodeView& each) { return each.id == node; });
    if (view != nodes.end()) {
      log.set_hostname(view->info.hostname);
      log.set_alive(view->alive);
    }
    if (why_not.empty() || kept.damage.empty()) continue;
    absl::StrAppend(&why_not, "; the log on ", node, " is damaged: ", kept.damage);
  }
  job.set_why_not(why_not);
  return job;
}

grpc::ServerUnaryReactor* SchedulerService::ListRecoverable(grpc::CallbackServerContext* context,
                                                            const v1::ListRecoverableRequest*,
                                                            v1::ListRecoverableResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&mutex_);
  const absl::Status status = Running();
  if (status.ok()) {
    for (const auto& [unique_id, orphan] : orphans_.jobs()) {
      *response->add_jobs() = Describe(unique_id, orphan);
    }
    std::stable_sort(response->mutable_jobs()->begin(), response->mutable_jobs()->end(),
                     [](const v1::RecoverableJob& a, const v1::RecoverableJob& b) {
                       return a.job_id() < b.job_id();
                     });
  }
  Commit({}, {.answers = {{reactor, status}}});
  return reactor;
}

// ---------------------------------------------------------------- recovery

grpc::ServerUnaryReactor* SchedulerService::RecoverJob(grpc::CallbackServerContext* context,
                                                       const v1::RecoverJobRequest* request,
                                                       v1::RecoverJobResponse* response) {
  const Call<v1::RecoverJobResponse> call{context->DefaultReactor(), response};
  absl::Status refused = CheckProtocolVersion(request->protocol_version());
  if (refused.ok()) {
    const bool posted = admission_.TryPost([this, request, call] {
      const absl::Status status = Recover(*request, call);
      if (!status.ok()) call.reactor->Finish(ToGrpcStatus(status));
    });
    if (posted) return call.reactor;
    refused = absl::ResourceExhaustedError("too many jobs wait to be checked; try again");
  }
  call.reactor->Finish(ToGrpcStatus(refused));
  return call.reactor;
}

absl::Status SchedulerService::Recover(const v1::RecoverJobRequest& request,
                                       const Call<v1::RecoverJobResponse>& call) {
  JobRecord record;
  {
    absl::MutexLock lock(&mutex_);
    CAPSTAN_RETURN_IF_ERROR(Running());
    const absl::StatusOr<std::string> found = orphans_.Find(request.job());
    if (absl::IsNotFound(found.status()) && core_->HasJob(request.job())) {
      return absl::AlreadyExistsError(
          absl::StrCat(request.job(), " is a job of this cluster already"));
    }
    if (!found.ok()) return found.status();
    const std::string& unique_id = *found;
    const OrphanedJob& orphan = orphans_.jobs().at(unique_id);
    const v1::RecoverableJob described = Describe(unique_id, orphan);
    if (const absl::Status status = WouldRecover(orphan); !status.ok()) {
      return absl::Status(
          absl::IsAlreadyExists(status) ? status.code() : absl::StatusCode::kFailedPrecondition,
          absl::StrCat(orphan.id, ": ", described.why_not()));
    }
    record = *orphan.record;
  }
  CAPSTAN_ASSIGN_OR_RETURN(AdmittedJob job, JobIn(record));
  CAPSTAN_RETURN_IF_ERROR(CheckWritable("output.directory", job.output_directory, ModelBytes(job)));
  CAPSTAN_ASSIGN_OR_RETURN(const CheckpointId floor, NewestId(disk_, job.plan.checkpoint_folder));
  return TakeUp(record, std::move(job), floor, call);
}

absl::Status SchedulerService::TakeUp(const JobRecord& record, AdmittedJob job,
                                      CheckpointId checkpoint_floor,
                                      const Call<v1::RecoverJobResponse>& call) {
  const JobId id = job.plan.id;
  auto admitted = std::make_shared<const AdmittedJob>(std::move(job));
  absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(Running());
  const auto orphan = orphans_.jobs().find(record.unique_id);
  if (orphan == orphans_.jobs().end()) {
    return absl::NotFoundError(absl::StrCat("no server has a log of ", id, " any more"));
  }
  const Instant now = clock_->Now();
  CAPSTAN_RETURN_IF_ERROR(core_->MayAdopt(admitted->plan, now));
  CAPSTAN_RETURN_IF_ERROR(LoadJob(record.rows, id, {now, absl::Now()}, *core_));
  Adoption adoption = AdoptionOf(record, orphan->second);
  adoption.checkpoint_floor = checkpoint_floor;
  Actions actions;
  CAPSTAN_RETURN_IF_ERROR(core_->Adopt(adoption, now, actions));
  jobs_[id] = admitted;
  call.response->set_job_id(id);
  call.response->set_cluster_id(ClusterIn(record.unique_id));
  call.response->set_record_unix_ms(record.unix_ms);
  Commit(std::move(actions), {.answers = {{call.reactor}}},
         {EncodeAdmitted(*admitted), orphans_.Forget(record.unique_id)});
  return absl::OkStatus();
}

}  // namespace capstan::scheduler
