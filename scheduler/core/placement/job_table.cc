#include "scheduler/core/placement/job_table.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "scheduler/core/job/view_of_job.h"
#include "scheduler/core/plan/epoch_plan.h"

namespace capstan::scheduler {

absl::Status NoSuchJob(const JobId& job) {
  return absl::NotFoundError(absl::StrCat("there is no job \"", job, "\""));
}

int ShardsOn(const JobTable& jobs, const NodeId& node) {
  int count = 0;
  for (const JobEntry* entry : jobs.Running()) count += entry->run->parts().shards.CopiesOn(node);
  return count;
}

// ---------------------------------------------------------------- one job

JobState JobEntry::state() const {
  if (run != nullptr) return run->parts().state;
  if (!stopped) return JobState::kPending;
  return failure.happened() ? JobState::kFailed : JobState::kStopped;
}

JobView JobEntry::View(Instant now) const {
  JobView view;
  if (run != nullptr) {
    view = ViewOf(run->parts(), now);
  } else {
    view.id = plan.id;
    view.state = state();
    view.failure = failure;
    view.detail = stopped ? "stopped before it started" : why_pending;
    if (stopped) view.ended = stopped_at;
    view.samples_total = EpochPlan(plan).samples_total();
  }
  view.submitted = submitted;
  view.revision = revision();
  view.events = history.events();
  view.events_forgotten = history.forgotten();
  return view;
}

// ---------------------------------------------------------------- all jobs

JobEntry& JobTable::Add(const JobPlan& plan, Instant now) {
  const CheckpointId floor = FloorIn(plan.folders, plan.checkpoint_floor);
  JobEntry& entry = jobs_[plan.id];
  entry.plan = plan;
  entry.plan.checkpoint_floor = floor;
  entry.number = next_number_++;
  entry.submitted = now;
  return entry;
}

JobEntry& JobTable::Load(const JobPlan& plan) {
  JobEntry& entry = jobs_[plan.id];
  entry.plan = plan;
  return entry;
}

namespace {

// Returns the number in "<name>-<number>"; 0 if there is none.
uint64_t NumberIn(const JobId& job) {
  uint64_t number = 0;
  const size_t mark = job.rfind('-');
  if (mark == JobId::npos || !absl::SimpleAtoi(job.substr(mark + 1), &number)) return 0;
  return number;
}

}  // namespace

void JobTable::TakeUp(JobEntry& entry) {
  entry.number = next_number_++;
  next_name_ = std::max(next_name_, NumberIn(entry.plan.id) + 1);
  NoteRunning(entry);
}

void JobTable::NoteEnded(const JobEntry& entry) {
  running_.erase(entry.number);
  ended_.emplace(entry.number, entry.plan.id);
  ended_by_time_.emplace(entry.ended_at(), entry.number);
}

void JobTable::Remove(const JobId& job) {
  const JobEntry& entry = jobs_.at(job);
  // A job that was only loaded may have the number of another one.
  if (const auto ended = ended_.find(entry.number); ended != ended_.end() && ended->second == job) {
    ended_by_time_.erase({entry.ended_at(), entry.number});
    ended_.erase(ended);
  }
  jobs_.erase(job);
}

JobEntry* JobTable::Find(const JobId& job) {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : &it->second;
}

const JobEntry* JobTable::Find(const JobId& job) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : &it->second;
}

JobRun* JobTable::RunOf(const JobId& job) {
  JobEntry* entry = Find(job);
  return entry == nullptr ? nullptr : entry->run.get();
}

const JobRun* JobTable::RunOf(const JobId& job) const {
  const JobEntry* entry = Find(job);
  return entry == nullptr ? nullptr : entry->run.get();
}

std::vector<JobEntry*> JobTable::Running() {
  std::vector<JobEntry*> entries;
  for (const auto& [number, job] : running_) entries.push_back(&jobs_.at(job));
  return entries;
}

std::vector<const JobEntry*> JobTable::Running() const {
  std::vector<const JobEntry*> entries;
  for (const auto& [number, job] : running_) entries.push_back(&jobs_.at(job));
  return entries;
}

std::vector<const JobEntry*> JobTable::All() const {
  std::vector<const JobEntry*> entries;
  for (const auto& [id, entry] : jobs_) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const JobEntry* a, const JobEntry* b) { return a->number < b->number; });
  return entries;
}

std::vector<JobId> JobTable::Outdated(size_t max, Instant since) const {
  std::set<uint64_t> numbers;
  for (const auto& [number, job] : ended_) {
    if (numbers.size() + max >= ended_.size()) break;
    numbers.insert(number);
  }
  for (const auto& [end, number] : ended_by_time_) {
    if (end > since) break;
    numbers.insert(number);
  }
  std::vector<JobId> jobs;
  for (const uint64_t number : numbers) jobs.push_back(ended_.at(number));
  return jobs;
}

Instant JobTable::FirstEnd() const {
  return ended_by_time_.empty() ? Instant::InfiniteFuture() : ended_by_time_.begin()->first;
}

const JobId* JobTable::JobOfSubmission(uint64_t submission_id, const std::string& owner) const {
  if (submission_id == 0) return nullptr;
  for (const auto& [id, entry] : jobs_) {
    if (entry.plan.submission_id == submission_id && entry.plan.owner == owner) return &id;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<const Routing>> JobTable::RoutingOf(const JobId& job) const {
  const JobEntry* entry = Find(job);
  if (entry == nullptr) return NoSuchJob(job);
  if (entry->run != nullptr) return entry->run->parts().routing;
  return absl::FailedPreconditionError(
      absl::StrCat(job, " has no servers: it ",
                   entry->stopped ? "was stopped before it started" : "has not started yet"));
}

// ---------------------------------------------------------------- folders

absl::Status JobTable::CheckFolders(const JobFolders& folders, Instant now,
                                    const JobId& owner) const {
  for (const auto& [id, entry] : jobs_) {
    if (entry.ended() || id == owner) continue;
    const std::string clash = WhyFoldersClash(folders, id, entry.plan.folders);
    if (clash.empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        clash, ", which is ", entry.run == nullptr ? "PENDING" : "RUNNING", " (",
        entry.View(now).detail, "); wait until it has ended, stop it, or name another folder"));
  }
  return absl::OkStatus();
}

absl::Status JobTable::CheckAdoption(const JobPlan& plan, Instant now) const {
  const JobEntry* known = Find(plan.id);
  if (known == nullptr) return CheckFolders(plan.folders, now);
  if (known->plan.unique_id == plan.unique_id) {
    return absl::AlreadyExistsError(absl::StrCat(plan.id, " is a job of this cluster already"));
  }
  return absl::AlreadyExistsError(absl::StrCat("another job of this cluster has the id ", plan.id,
                                               "; once that one has ended, `capstan job delete ",
                                               plan.id, "` frees it"));
}

// Servers may still write a checkpoint of an ended job after the folder was listed, so the ids of
// begun checkpoints count, too.
CheckpointId JobTable::FloorIn(const JobFolders& folders, CheckpointId floor) const {
  if (folders.checkpoints.empty()) return floor;
  for (const auto& [id, entry] : jobs_) {
    if (entry.run == nullptr || entry.plan.folders.checkpoints != folders.checkpoints) continue;
    floor = std::max(floor, entry.run->parts().checkpoints.all().last_begun());
  }
  return floor;
}

CheckpointRemoval JobTable::CheckpointsToRemove(const JobId& job) const {
  const JobRun* run = RunOf(job);
  if (run == nullptr) return {};
  CheckpointRemoval removal = run->parts().checkpoints.all().complete().Removal();
  for (const auto& [id, entry] : jobs_) {
    if (!entry.restore || entry.ended()) continue;
    if (entry.restore->pinned_in != run->parts().plan.folders.checkpoints) continue;
    removal.pinned.emplace_back(entry.restore->rests_on, entry.restore->id);
  }
  return removal;
}

bool JobTable::AwaitsModel(const TaskKey& exporter) const {
  const JobRun* run = RunOf(exporter.job);
  return run != nullptr && run->parts().exporter.Awaits(exporter);
}

bool JobTable::MayWriteInto(const std::string& folder, const std::optional<NodeId>& node) const {
  return std::any_of(running_.begin(), running_.end(), [&](const auto& entry) {
    const JobParts& job = RunOf(entry.second)->parts();
    return job.WritesInto(folder) && (!node || job.RunsOn(*node));
  });
}

bool JobTable::MayReadFrom(const std::string& folder, const std::optional<NodeId>& node) const {
  return std::any_of(running_.begin(), running_.end(), [&](const auto& entry) {
    const JobParts& job = RunOf(entry.second)->parts();
    return job.MayGoBackTo(folder) && (!node || job.RunsOn(*node));
  });
}

const Task* TaskOf(const JobTable& jobs, const TaskKey& key) {
  const JobRun* run = jobs.RunOf(key.job);
  return run == nullptr ? nullptr : run->parts().tasks.Find(key);
}

}  // namespace capstan::scheduler
