#include "scheduler/orphan_recovery.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/security/capability.h"
#include "common/status/status_macros.h"
#include "scheduler/admission/admitted_codec.h"
#include "scheduler/store/state_codec.h"

namespace capstan::scheduler {
namespace {

// Returns the only job in `record`. Errors: kDataLoss  the record is not of that job alone.
absl::StatusOr<AdmittedJob> JobIn(const JobRecord& record) {
  CAPSTAN_ASSIGN_OR_RETURN(const AdmittedJobs jobs, DecodeAdmitted(record.rows));
  const auto job = jobs.find(record.job);
  if (job == jobs.end() || job->second->plan.unique_id != record.unique_id) {
    return absl::DataLossError(
        absl::StrCat("the record of ", record.job, " does not have its specification"));
  }
  // The job is loaded with the plan of its own row, whose floor may be higher: other jobs may have
  // begun checkpoints in the same folder.
  CAPSTAN_ASSIGN_OR_RETURN(JobPlan plan, LoadPlan(record.rows, record.job));
  plan.checkpoint_floor = job->second->plan.checkpoint_floor;
  if (plan == job->second->plan) return *job->second;
  return absl::DataLossError(absl::StrCat("the record of ", record.job,
                                          " has two plans, expected the one that was admitted"));
}

Adoption AdoptionOf(const JobRecord& record, const OrphanedJob& orphan) {
  Adoption adoption{.job = record.job, .cluster = ClusterIn(record.unique_id)};
  adoption.record_age =
      std::max(absl::ZeroDuration(), absl::Now() - absl::FromUnixMillis(record.unix_ms));
  for (const auto& [node, log] : orphan.logs) adoption.stored[node] = log.shards;
  return adoption;
}

}  // namespace

// ---------------------------------------------------------------- listing

absl::Status OrphanRecovery::WouldRecover(const OrphanedJob& orphan) {
  CAPSTAN_RETURN_IF_ERROR(orphan.record.status());
  CAPSTAN_ASSIGN_OR_RETURN(const AdmittedJob job, JobIn(*orphan.record));
  const Instant now = state_->Now();
  CAPSTAN_RETURN_IF_ERROR(state_->core().jobs().CheckAdoption(job.plan, now));
  CAPSTAN_RETURN_IF_ERROR(
      LoadJob(orphan.record->rows, job.plan.id, {now, absl::Now()}, state_->core()));
  Adoption adoption = AdoptionOf(*orphan.record, orphan);
  adoption.only_check = true;
  Actions none;
  return state_->core().Adopt(adoption, now, none);
}

v1::RecoverableJob OrphanRecovery::Describe(const std::string& unique_id,
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
  const std::vector<NodeView> nodes = state_->core().Nodes();
  for (const auto& [node, kept] : orphan.logs) {
    v1::RecoverableLog& log = *job.add_logs();
    log.set_node_id(node);
    log.set_shards(static_cast<int>(kept.shards.size()));
    log.set_damage(kept.damage);
    const auto view = std::find_if(nodes.begin(), nodes.end(),
                                   [&id = node](const NodeView& each) { return each.id == id; });
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

void OrphanRecovery::List(const Call<v1::ListRecoverableResponse>& call) {
  absl::MutexLock lock(&state_->mutex());
  const absl::Status status = state_->Running();
  if (status.ok()) {
    for (const auto& [unique_id, orphan] : state_->orphans().jobs()) {
      *call.response->add_jobs() = Describe(unique_id, orphan);
    }
    std::stable_sort(call.response->mutable_jobs()->begin(), call.response->mutable_jobs()->end(),
                     [](const v1::RecoverableJob& a, const v1::RecoverableJob& b) {
                       return a.job_id() < b.job_id();
                     });
  }
  state_->Commit({}, {{call.reactor, status}});
}

// ---------------------------------------------------------------- recovery

absl::Status OrphanRecovery::Recover(const v1::RecoverJobRequest& request,
                                     const Call<v1::RecoverJobResponse>& call) {
  JobRecord record;
  {
    absl::MutexLock lock(&state_->mutex());
    CAPSTAN_RETURN_IF_ERROR(state_->Running());
    const absl::StatusOr<std::string> found = state_->orphans().Find(request.job());
    if (absl::IsNotFound(found.status()) && state_->core().jobs().Find(request.job()) != nullptr) {
      return absl::AlreadyExistsError(
          absl::StrCat(request.job(), " is a job of this cluster already"));
    }
    if (!found.ok()) return found.status();
    const std::string& unique_id = *found;
    const OrphanedJob& orphan = state_->orphans().jobs().at(unique_id);
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

absl::Status OrphanRecovery::TakeUp(const JobRecord& record, AdmittedJob job,
                                    CheckpointId checkpoint_floor,
                                    const Call<v1::RecoverJobResponse>& call) {
  const JobId id = job.plan.id;
  CAPSTAN_ASSIGN_OR_RETURN(job.capability_key, CapabilityKey::Draw());  // A record has none.
  auto admitted = std::make_shared<const AdmittedJob>(std::move(job));
  absl::MutexLock lock(&state_->mutex());
  CAPSTAN_RETURN_IF_ERROR(state_->Running());
  const auto orphan = state_->orphans().jobs().find(record.unique_id);
  if (orphan == state_->orphans().jobs().end()) {
    return absl::NotFoundError(absl::StrCat("no server has a log of ", id, " any more"));
  }
  const Instant now = state_->Now();
  CAPSTAN_RETURN_IF_ERROR(state_->core().jobs().CheckAdoption(admitted->plan, now));
  CAPSTAN_RETURN_IF_ERROR(LoadJob(record.rows, id, {now, absl::Now()}, state_->core()));
  Adoption adoption = AdoptionOf(record, orphan->second);
  adoption.checkpoint_floor = checkpoint_floor;
  Actions actions;
  CAPSTAN_RETURN_IF_ERROR(state_->core().Adopt(adoption, now, actions));
  state_->jobs()[id] = admitted;
  call.response->set_job_id(id);
  call.response->set_cluster_id(ClusterIn(record.unique_id));
  call.response->set_record_unix_ms(record.unix_ms);
  state_->Commit(std::move(actions), {{call.reactor}},
                 {EncodeAdmitted(*admitted), state_->orphans().Forget(record.unique_id)});
  return absl::OkStatus();
}

}  // namespace capstan::scheduler
