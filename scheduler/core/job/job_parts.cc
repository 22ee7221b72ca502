#include "scheduler/core/job/job_parts.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "scheduler/core/work/sample_leases.h"

namespace capstan::scheduler {
namespace {

absl::string_view ParentOf(absl::string_view folder) {
  return folder.substr(0, std::min(folder.rfind('/'), folder.size()));
}

// Whether the last part of the path is the name of a checkpoint. Others, such as "..", may lead out
// of the folder that the rest of the path names.
bool NamesCheckpoint(absl::string_view folder) {
  absl::string_view name = folder.substr(ParentOf(folder).size());
  return absl::ConsumePrefix(&name, "/checkpoint-") && !name.empty() &&
         std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

}  // namespace

JobParts::~JobParts() = default;

JobParts::JobParts(const JobPlan& job_plan, std::shared_ptr<const Routing> table,
                   const JobRunOptions& job_options, Instant now,
                   std::optional<RestoreFrom> restore)
    : JobShared(job_plan, std::move(table), job_options, now,
                restore ? restore->at.membership.Next() : Generation(1)),
      exporter(this),
      checkpoints(this),
      training(this, &checkpoints),
      task_watch(this, &training, &exporter),
      server_watch(this, {&checkpoints, &training, &exporter, &task_watch}, std::move(restore)) {
  if (const auto& from = server_watch.recovery().restore()) {
    SetTrained(from->at.trained, now);
  }
}

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
  std::vector<Rank> ranks = tasks.Unplaced();
  std::erase_if(ranks, [this](Rank rank) { return IsRunDone(rank); });
  // When all runs are done, one task writes the model.
  const bool none_placed = tasks.CountIn(Task::State::kUnplaced) == plan.workers;
  if (ranks.empty() && none_placed) ranks.push_back(Rank(0));
  return ranks;
}

std::vector<TaskKey> JobParts::PlacedTasks() const {
  std::vector<TaskKey> keys;
  for (const Task& task : tasks.all()) {
    if (task.placed()) keys.push_back({plan.id, task.rank, task.incarnation});
  }
  return keys;
}

bool JobParts::IsRunDone(Rank rank) const {
  if (!plan.own_pace) return false;
  if (phase == JobPhase::kExporting) return true;
  if (HasBegun()) return task_watch.IsRunDone(rank);
  const auto& restore = server_watch.recovery().restore();
  return restore && !Cover(restore->at.untrained, rank.value());
}

bool JobParts::AvoidsWorkers() const {
  const std::set<NodeId> avoided = task_watch.links().AvoidedWorkers();
  return std::any_of(tasks.all().begin(), tasks.all().end(), [&](const Task& task) {
    return task.placed() && (!IsRunDone(task.rank) || !avoided.contains(task.node));
  });
}

std::vector<Rank> JobParts::YieldingRanks() const {
  std::vector<Rank> yielding;
  if (!plan.own_pace || !training.IsTraining()) return yielding;
  const auto& links = task_watch.links();
  size_t wanted = UnplacedRanks().size();
  for (const Task& task : tasks.all()) wanted += links.StrandedFrom(task.rank).empty() ? 0 : 1;
  const auto avoided = AvoidsWorkers() ? links.AvoidedWorkers() : std::set<NodeId>();
  for (const Task& task : tasks.all()) {
    if (yielding.size() == wanted) break;
    if (!task.live() || !IsRunDone(task.rank) || avoided.contains(task.node)) continue;
    yielding.push_back(task.rank);
  }
  return yielding;
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
  const auto& begins_at = server_watch.recovery().begins_at();
  if (begins_at && folder == begins_at->folder) return true;  // Users may have renamed it.
  if (!NamesCheckpoint(folder)) return false;
  const absl::string_view parent = ParentOf(folder);
  return parent == plan.checkpoint_folder || (begins_at && parent == ParentOf(begins_at->folder));
}

}  // namespace capstan::scheduler
