#include "scheduler/core/job/parts/job_export.h"

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/time/duration_text.h"
#include "common/types/staging.h"

namespace capstan::scheduler {

std::string JobExport::StagedPath(const TaskKey& writer) const {
  if (Planted(PlantedBug::kExportUnstaged)) return folder_;
  return absl::StrCat(folder_, "/", kStagedModelPrefix, writer.rank.value(), "-",
                      writer.incarnation.value());
}

bool JobExport::AssignWriter() {
  for (const Rank rank : job_.tasks.Live()) {
    const Incarnation incarnation = job_.tasks.at(rank).incarnation;
    if (incarnation < last_staged_) continue;
    if (!writer_ || incarnation < job_.tasks.at(*writer_).incarnation) writer_ = rank;
  }
  return writer_.has_value();
}

void JobExport::AddTo(Assignment* assignment, const TaskKey& task) const {
  if (writer_ != task.rank) return;
  assignment->phase = TaskPhase::kExport;
  assignment->export_path = left_to_writer_ ? folder_ : StagedPath(task);
  if (left_to_writer_) assignment->staged_path = StagedPath(task);
}

bool JobExport::OnWritten(const TaskKey& writer) {
  if (left_to_writer_ || Planted(PlantedBug::kExportUnstaged)) {
    done_ = true;
    return false;
  }
  if (staged_) return false;
  staged_ = writer;
  return true;
}

// A staged model does not need its writer any more, unless the writer itself moves it.
void JobExport::OnTaskEnded(Rank rank) {
  if (writer_ != rank) return;
  writer_.reset();
  if (left_to_writer_) Clear();
}

bool JobExport::WritesInto(const std::string& folder) const {
  if (!IsExporting() || folder.empty() || !writer_ || staged_) return false;
  const Task& task = job_.tasks.at(*writer_);
  return task.live() && StagedPath({job_.plan.id, task.rank, task.incarnation}) == folder;
}

bool JobExport::IsWhole() const {
  if (job_.phase == JobPhase::kFinishing) return true;
  return job_.phase == JobPhase::kExporting && staged_ &&
         !Planted(PlantedBug::kMissServersWhileMoving);
}

bool JobExport::IsNeeded(Rank rank) const {
  return !IsWhole() || (job_.phase == JobPhase::kExporting && IsLeftTo(rank));
}

bool JobExport::Awaits(const TaskKey& writer) const {
  return IsExporting() && staged_ == writer && !left_to_writer_;
}

std::optional<ModelPublish> JobExport::TakePublish() {
  if (!IsExporting() || taken_ || !staged_ || left_to_writer_) return std::nullopt;
  taken_ = true;
  return ModelPublish{*staged_, StagedPath(*staged_), folder_};
}

void JobExport::OnPublished(const absl::Status& status, Events& events) {
  taken_ = false;
  if (status.ok()) {
    done_ = true;
  } else if (writer_) {
    events.push_back(ModelLeftToTask{*staged_, std::string(status.message())});
    left_to_writer_ = true;
  } else {
    Clear();
  }
}

void JobExport::Clear() {
  if (staged_) last_staged_ = staged_->incarnation;
  writer_.reset();
  staged_.reset();
  left_to_writer_ = false;
  done_ = false;
  taken_ = false;
  kept_.reset();
}

void JobExport::Keep(const std::string& why, Instant now, Events& events) {
  Clear();
  kept_ = {now + job_.options.keep_model, why};
  events.push_back(ModelKept{job_.plan.id, why});
}

std::optional<Instant> JobExport::kept_until() const {
  return kept_ ? std::make_optional(kept_->until) : std::nullopt;
}

void JobExport::Ask(const std::string& folder) {
  kept_.reset();
  if (!folder.empty()) folder_ = folder;
}

std::optional<Failure> JobExport::Overdue(Instant now) const {
  if (!kept_ || now < kept_->until) return std::nullopt;
  return Failure{FailureReason::kOutputFailed,
                 absl::StrCat(kept_->why, " (the model was kept for ",
                              DurationText(job_.options.keep_model), ", and nobody exported it)")};
}

std::string JobExport::Detail(const std::string& progress, Instant now) const {
  if (kept_) {
    return absl::StrCat("the model cannot be written to ", folder_, "; it is kept for ",
                        DurationText(kept_->until - now), " more: capstan job export ",
                        job_.plan.id, " --to=FOLDER writes it; ", kept_->why);
  }
  if (staged_) return absl::StrCat("moves the model to ", folder_);
  return absl::StrCat("writes the model to ", folder_, progress);
}

void JobExport::RestartLimits(Instant now) {
  if (kept_) kept_->until = now + job_.options.keep_model;
}

}  // namespace capstan::scheduler
