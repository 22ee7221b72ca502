// The export: a task writes the model into a folder of its own life, and the scheduler gives it its
// name. So a task that was taken for dead and lives can do no more than write where nobody looks.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/time/duration_text.h"
#include "common/types/staging.h"
#include "scheduler/core/job_run.h"

namespace capstan::scheduler {

std::string JobRun::StagedPath(const TaskKey& life) const {
  if (Planted(PlantedBug::kExportUnstaged)) return ExportPath();
  return absl::StrCat(ExportPath(), "/", kStagedModelPrefix, life.rank.value(), "-",
                      life.incarnation.value());
}

void JobRun::AssignExport(const Task& task, Assignment& wanted) const {
  if (exporter_ != task.rank) return;
  const std::string staged = StagedPath({plan_.id, task.rank, task.incarnation});
  wanted.phase = TaskPhase::kExport;
  wanted.export_path = left_to_exporter_ ? ExportPath() : staged;
  if (left_to_exporter_) wanted.staged_path = staged;
}

// The exporter has done what it is assigned, and says so until it is assigned something else.
void JobRun::TakeExported(const Task& task) {
  if (left_to_exporter_ || Planted(PlantedBug::kExportUnstaged)) {
    exported_ = true;
  } else if (!staged_) {
    staged_ = TaskKey{plan_.id, task.rank, task.incarnation};
    ++decisions_;
  }
}

bool JobRun::IsModelWhole() const {
  if (phase_ == JobPhase::kFinishing) return true;
  return phase_ == JobPhase::kExporting && staged_ && !Planted(PlantedBug::kMissServersWhileMoving);
}

bool JobRun::IsNeeded(Rank rank) const {
  if (!IsModelWhole()) return true;
  return phase_ == JobPhase::kExporting && left_to_exporter_ && exporter_ == rank;
}

bool JobRun::AwaitsModel(const TaskKey& exporter) const {
  return !ended() && phase_ == JobPhase::kExporting && staged_ == exporter && !left_to_exporter_;
}

std::optional<ModelPublish> JobRun::TakeModelPublish() {
  if (model_taken_ || !staged_ || !AwaitsModel(*staged_)) return std::nullopt;
  model_taken_ = true;
  return ModelPublish{*staged_, StagedPath(*staged_), ExportPath()};
}

bool JobRun::WritesInto(const std::string& folder) const {
  if (ended() || folder.empty()) return false;
  if (checkpoints_.order().folder == folder) return true;
  const bool writes = phase_ == JobPhase::kExporting && exporter_ && !staged_;
  if (!writes || !tasks_.at(*exporter_).live()) return false;
  return StagedPath({plan_.id, *exporter_, tasks_.at(*exporter_).incarnation}) == folder;
}

void JobRun::OnModelPublished(const TaskKey& exporter, const absl::Status& status, Instant now,
                              Events& events) {
  if (!AwaitsModel(exporter)) return;
  model_taken_ = false;
  ++decisions_;
  if (status.ok()) {
    exported_ = true;
  } else if (exporter_) {
    events.push_back(ModelLeftToTask{exporter, std::string(status.message())});
    left_to_exporter_ = true;
  } else {
    ForgetExport();
  }
  Advance(now, events);
}

// Another task writes it, from the beginning.
void JobRun::ForgetExport() {
  exporter_.reset();
  staged_.reset();
  left_to_exporter_ = false;
  exported_ = false;
  model_taken_ = false;
  kept_model_.reset();
}

// What was written whole needs its writer only to move it.
void JobRun::NoteExporterDied() {
  exporter_.reset();
  if (left_to_exporter_) ForgetExport();
}

bool JobRun::IsOfExport(const Task& task, const Failure& failure) const {
  return failure.reason == FailureReason::kOutputFailed && phase_ == JobPhase::kExporting &&
         exporter_ == task.rank;
}

// The task goes on in another life, which waits; the tables stay as they are.
void JobRun::KeepModel(const Task& task, const Failure& failure, Instant now, Events& events) {
  const std::string why =
      absl::StrCat("task ", task.rank.value(), " on ", task.node, ": ", failure.message);
  EndTask(task.rank, failure, /*counted=*/false, now, events);
  ForgetExport();
  kept_model_ = {now + options_.keep_model, why};
  ++decisions_;
  events.push_back(ModelKept{plan_.id, why});
}

absl::Status JobRun::AskExport(const std::string& folder, Instant now, Events& events) {
  if (ended() || !kept_model_) {
    return absl::FailedPreconditionError(absl::StrCat(
        plan_.id,
        " keeps no model that could not be written: ", ended() ? "it has ended" : Detail(now)));
  }
  kept_model_.reset();
  if (!folder.empty()) export_to_ = folder;
  ++decisions_;
  ++revision_;
  Advance(now, events);
  return absl::OkStatus();
}

void JobRun::CheckKeptModel(Instant now, Events& events) {
  if (!kept_model_ || now < kept_model_->until) return;
  End(JobState::kFailed,
      {FailureReason::kOutputFailed,
       absl::StrCat(kept_model_->why, " (the model was kept for ",
                    DurationText(options_.keep_model), ", and nobody exported it)")},
      now, events);
}

std::string JobRun::KeptDetail(Instant now) const {
  return absl::StrCat("the model cannot be written to ", ExportPath(), "; it is kept for ",
                      DurationText(kept_model_->until - now), " more: capstan job export ",
                      plan_.id, " --to=FOLDER writes it; ", kept_model_->why);
}

// Whatever happens to the servers from now on: nobody needs the tables.
void JobRun::EnterFinishing(Instant now, Events& events) {
  recovery_.reset();
  finishing_since_ = now;
  SetPhase(JobPhase::kFinishing, events);
}

}  // namespace capstan::scheduler
