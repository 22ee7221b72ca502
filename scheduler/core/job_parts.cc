#include "scheduler/core/job_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace capstan::scheduler {
namespace {

absl::string_view ParentOf(absl::string_view folder) {
  return folder.substr(0, std::min(folder.rfind('/'), folder.size()));
}

}  // namespace

JobParts::JobParts(const JobPlan& job_plan, std::shared_ptr<const Routing> table,
                   const JobRunOptions& job_options, Instant now,
                   std::optional<RestoreFrom> restore)
    : JobShared(job_plan, std::move(table), job_options, now,
                restore ? restore->at.membership.Next() : Generation(1)),
      exporter(this),
      checkpoints(this),
      training(this, &checkpoints),
      task_watch(this, &training, &exporter),
      server_watch(this, {&checkpoints, &training, &exporter, &task_watch}, std::move(restore)) {}

absl::Status JobParts::Check() const {
  if (state == JobState::kPending || phase == JobPhase::kRecovering) {
    return absl::DataLossError(absl::StrCat("state ", static_cast<int>(state), ", phase ",
                                            static_cast<int>(phase),
                                            ", expected those of a job that runs or has ended"));
  }
  using Use = SampleLeases::Use;
  const bool saved = HasBegun() && training.IsWithinEpoch() && !epochs.returned();
  const bool trains = phase == JobPhase::kTraining || saved ||
                      (phase == JobPhase::kCheckpointing && plan.consistency.synchronous());
  if ((!trains || training.HasLeases(Use::kTrain)) &&
      (phase != JobPhase::kEvaluating || training.HasLeases(Use::kEvaluate))) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("leases: none of ", trains ? "training" : "evaluation",
                                          ", expected those of phase ", static_cast<int>(phase)));
}

std::vector<Rank> JobParts::UnplacedRanks() const {
  if (ended() || exporter.IsWhole()) return {};
  return tasks.Unplaced();
}

std::vector<TaskKey> JobParts::PlacedTasks() const {
  std::vector<TaskKey> keys;
  for (const Task& task : tasks.all()) {
    if (task.placed()) keys.push_back({plan.id, task.rank, task.incarnation});
  }
  return keys;
}

bool JobParts::RunsOn(const NodeId& node) const {
  return server_watch.Uses(node) || !tasks.OnNode(node).empty();
}

bool JobParts::WritesInto(const std::string& folder) const {
  if (ended() || folder.empty()) return false;
  return checkpoints.all().order().folder == folder || exporter.WritesInto(folder);
}

bool JobParts::MayGoBackTo(const std::string& folder) const {
  if (ended()) return false;
  const absl::string_view parent = ParentOf(folder);
  const auto& begins_at = server_watch.recovery().begins_at();
  return parent == plan.checkpoint_folder || (begins_at && parent == ParentOf(begins_at->folder));
}

}  // namespace capstan::scheduler
