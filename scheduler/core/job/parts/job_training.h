// JobTraining: how a job trains an epoch: which tasks are active members, what work they get, when
// they rest for a checkpoint, and which figures come of it. It also has the work of the evaluation,
// which is leased in the same way.
//
//   Enter(e) --Advance: all servers know all live tasks as inactive--> BEGUN: these are active
//   BEGUN --Advance: grants work; a task that joins becomes active, one without work inactive-->
//       --all work is done--> trained: Rest
//       --a checkpoint is due--> QUIETING --nothing is on its way--> IsQuiet --GoOn--> BEGUN
//
// The phases are JobRun's, which calls this; WorkLeases has the leases, JobMembers the members.
// Thread safety: thread-compatible.
// Invariant: work is leased only to live tasks that all servers know to be active.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_TRAINING_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_TRAINING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/checkpoints/checkpoint_pause.h"
#include "scheduler/core/job/parts/job_checkpoints.h"
#include "scheduler/core/job/parts/job_shared.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/plan/job_metrics.h"
#include "scheduler/core/plan/resume_point.h"
#include "scheduler/core/work/job_tasks.h"
#include "scheduler/core/work/sample_work.h"
#include "scheduler/core/work/slot_work.h"
#include "scheduler/core/work/work_leases.h"

namespace capstan::scheduler {

class JobTraining {
 public:
  JobTraining(JobShared* job, const JobCheckpoints* checkpoints);

  // ---- the phase
  // `from`: trains only the rest of the epoch from there; null: trains all of it.
  void Enter(Epoch epoch, const ResumePoint* from, Instant now, Events& events);
  void Resume(const ResumePoint& at, Instant now, Events& events);  // Enters the epoch of `at`.
  void Advance(Instant now);
  void Rest(Instant now);                // Training is over, for now: no task holds others back.
  bool begun() const { return begun_; }  // Members are active in this phase.

  // All work is done, and no server accepts a push of a dead task any more: a copy of the tables
  // between this epoch and the next one must not miss a part of such a push.
  bool IsOver() const;

  // ---- quiet moments
  bool IsQuiet() const;  // Training, and nothing is on its way.
  // When a checkpoint will be due by time; InfiniteFuture: never, or one is due already.
  Instant NextQuiet() const;
  ResumePoint PointNow(CheckpointPause::At moment, Instant now) const;  // REQUIRES: quiet.

  // ---- how far it is
  bool IsTraining() const;      // An epoch is trained; a checkpoint may keep it quiet.
  bool IsWithinEpoch() const;   // The leases say how much of the epoch is trained.
  int64_t StepsDone() const;    // Through the whole job, as EpochPlan counts.
  int64_t StepsAtEnd() const;   // At the end of the present epoch.
  int64_t SamplesDone() const;  // Through the whole job.

  // ---- reports
  // Accepts the figures and the work of a report that WorkLeases::Validate accepts. True: some work
  // has gone on.
  bool OnReport(Task& task, const TaskReport& report, Instant now);
  void EmitReportIfDue(Instant now, Events& events);
  void EmitReport(Instant now, Events& events);  // Unless nothing was trained since the last.
  double AccuracyOf(const JobMetrics::Sums& sums) const;  // 0 where the objective has none.

  bool HasLeases(SampleLeases::Use use) const;  // There are leases for that use.
  WorkLeases& work() { return *work_; }
  const WorkLeases& work() const { return *work_; }

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(begun_);
  }
  template <typename Archive>
  void SerializeWork(Archive& archive) {
    if (job_.plan.consistency.synchronous()) {
      archive(static_cast<SlotWork&>(*work_));
    } else {
      archive(static_cast<SampleWork&>(*work_));
    }
  }
  void Restored(Instant now);

 private:
  bool Begin(Instant now);
  bool IsActive(Rank rank) const;  // It is an active member.
  void PlanQuiet(Instant now);
  void Grant(Instant now);
  void ActivateJoiners(Instant now);
  void DeactivateWorkless(Instant now);
  std::vector<Rank> ReadyRanks() const;

  JobShared& job_;
  const JobCheckpoints& checkpoints_;
  const std::unique_ptr<WorkLeases> work_;
  bool begun_ = false;
  bool due_ = false;     // A checkpoint was due when PlanQuiet was called last. Not durable.
  Instant last_report_;  // When the newest Report event was.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_TRAINING_H_
