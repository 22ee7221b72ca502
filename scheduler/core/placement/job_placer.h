// JobPlacer: gives waiting jobs their servers and task slots, gives the tasks of running jobs
// theirs, and moves tasks from nodes that are drained or cannot reach a server. Part of
// SchedulerCore.
//
// Older jobs come before younger ones, and running jobs before waiting ones. A task slot holds at
// most one task.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_PLACEMENT_JOB_PLACER_H_
#define CAPSTAN_SCHEDULER_CORE_PLACEMENT_JOB_PLACER_H_

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/job/job_run.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/messages/plugin_rules.h"
#include "scheduler/core/nodes/membership.h"
#include "scheduler/core/nodes/worker_slots.h"
#include "scheduler/core/placement/job_queue.h"
#include "scheduler/core/placement/job_table.h"
#include "scheduler/core/plan/job_plan.h"

namespace capstan::scheduler {

// Gives out incarnations of nodes and tasks: each once, in ascending order.
struct IncarnationCounter {
  Incarnation next;
  Incarnation Take() { return std::exchange(next, next.Next()); }
  void RaiseTo(Incarnation least) { next = std::max(next, least); }
};

class JobPlacer {
 public:
  // The objects behind the pointers outlive this one. Every JobRun that it starts gets `options`.
  JobPlacer(const JobRun::Options& options, JobTable* jobs, const Membership* membership,
            IncarnationCounter* incarnations)
      : options_(options), jobs_(*jobs), membership_(*membership), incarnations_(*incarnations) {}

  WorkerSlots& slots() { return slots_; }
  const WorkerSlots& slots() const { return slots_; }

  // The job waits for its places. Errors: kResourceExhausted  too many jobs wait.
  absl::Status Enqueue(const JobPlan& plan);
  void Dequeue(const JobId& job);
  // Names the resources that the cluster lacks for `job`, even if no other job ran. Empty: it lacks
  // none, or the job does not wait, or not all nodes are heard again after a restart.
  std::string WhyTooSmall(const JobId& job, Instant now) const;

  void ReleaseSlots();  // Frees the slots of tasks that their jobs do not want any more.
  void MoveTasks(Instant now, Events& events);
  void PlaceTasks(Instant now, Events& events);
  void StartJobs(Instant now, Events& events);
  void ExplainPending();  // Sets JobEntry::why_pending.
  // Whether slots were taken or released, or jobs started, since the last call.
  bool TakeChanged() { return std::exchange(changed_, false); }

 private:
  // Chooses a place for a rank of the job. The place is on a worker daemon that is to be avoided
  // only if there is no other, and the job does not avoid such workers (JobParts::AvoidsWorkers).
  std::optional<WorkerSlots::Place> ChoosePlace(const JobEntry& job) const;
  bool MayMoveTask(const TaskKey& key) const;
  void MoveTask(const TaskKey& key, const std::string& why, Instant now, Events& events);
  void MoveStranded(Instant now, Events& events);
  void YieldSlots(JobRun& run, Instant now, Events& events);  // REQUIRES: its ranks find no slot.
  void StartJob(JobEntry& entry, Instant now, Events& events);
  std::vector<ServerRef> ChooseServers(const JobPlan& plan) const;
  // Servers that can be given shards and have the rules, by name.
  std::vector<const Node*> ServersWith(const std::vector<PluginRule>& rules) const;
  Supplies CurrentSupplies() const;

  const JobRun::Options options_;
  JobTable& jobs_;
  const Membership& membership_;
  IncarnationCounter& incarnations_;
  WorkerSlots slots_;
  JobQueue queue_;
  Supplies explained_supplies_;  // The supplies that the pending jobs' reasons name.
  bool queue_changed_ = true;    // Since the last explanation.
  bool changed_ = false;
};

// Gives `run` every server that lives and has the rules of `plan`, each with the job's shards in
// its logs (`stored`).
void JoinLiveServers(const Membership& membership,
                     const std::map<NodeId, std::vector<StoredShard>>& stored, const JobPlan& plan,
                     Instant now, JobRun& run, Events& events);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLACEMENT_JOB_PLACER_H_
