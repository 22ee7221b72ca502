// The export: a task writes the model into a folder of its own life, and the scheduler gives it its
// name. So a task that was taken for dead and lives can do no more than write where nobody looks.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/types/staging.h"
#include "scheduler/core/job_run.h"

namespace capstan::scheduler {

std::string JobRun::StagedPath(const TaskKey& life) const {
  if (Planted(PlantedBug::kExportUnstaged)) return plan_.export_path;
  return absl::StrCat(plan_.export_path, "/", kStagedModelPrefix, life.rank.value(), "-",
                      life.incarnation.value());
}

void JobRun::AssignExport(const Task& task, Assignment& wanted) const {
  if (exporter_ != task.rank) return;
  const std::string staged = StagedPath({plan_.id, task.rank, task.incarnation});
  wanted.phase = TaskPhase::kExport;
  wanted.export_path = left_to_exporter_ ? plan_.export_path : staged;
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
  return ModelPublish{*staged_, StagedPath(*staged_), plan_.export_path};
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
}

// What was written whole needs its writer only to move it.
void JobRun::NoteExporterDied() {
  exporter_.reset();
  if (left_to_exporter_) ForgetExport();
}

// Whatever happens to the servers from now on: nobody needs the tables.
void JobRun::EnterFinishing(Instant now, Events& events) {
  recovery_.reset();
  finishing_since_ = now;
  SetPhase(JobPhase::kFinishing, events);
}

}  // namespace capstan::scheduler
