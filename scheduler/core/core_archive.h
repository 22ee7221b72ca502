// CoreArchive: saves and loads a SchedulerCore, for scheduler/store/state_codec.h.
//
// The members are templates in the form of scheduler/store/archive.h, so that the core knows no
// format. Loading comes first, then Restored, then anything else.
// Thread safety: as the core that it is made for.
#ifndef CAPSTAN_SCHEDULER_CORE_CORE_ARCHIVE_H_
#define CAPSTAN_SCHEDULER_CORE_CORE_ARCHIVE_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/job/job_run.h"
#include "scheduler/core/placement/store_revisions.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/scheduler_core.h"

namespace capstan::scheduler {

class CoreArchive {
 public:
  explicit CoreArchive(SchedulerCore* core) : core_(*core) {}

  StoreRevisions& revisions() { return core_.revisions_; }

  // Daemons, task slots, desired states, and the counters.
  template <typename Archive>
  void SerializeNodes(Archive& archive) {
    Counters counters{core_.jobs_};
    archive(core_.incarnations_.next, counters, core_.membership_, core_.placer_.slots(),
            core_.desired_);
  }

  // The run exists only for started jobs and must remain the last value: new values of a job belong
  // in JobEntry. REQUIRES: the core has the job.
  template <typename Archive>
  void SaveJob(const JobId& job, Archive& archive) {
    JobEntry& entry = *core_.jobs_.Find(job);
    archive(entry.plan, entry, entry.run != nullptr);
    if (entry.run != nullptr) archive(*entry.run);
  }

  // `routing`: the job's table as it was saved; null: none was.
  // Errors: kDataLoss  it is another job's, known already or out of range; it runs without a table.
  template <typename Archive>
  absl::Status LoadJob(const JobId& job, std::shared_ptr<const Routing> routing, Instant now,
                       Archive& archive) {
    JobPlan plan;
    archive(plan);
    if (plan.id != job) return absl::DataLossError(absl::StrCat("it is of ", plan.id));
    // A row without a plan leaves the default plan, which no job can have.
    if (const absl::Status status = CheckPlan(plan); !status.ok()) return status;
    if (core_.jobs_.Find(job) != nullptr) return absl::DataLossError("the job is known already");
    JobEntry& entry = core_.jobs_.Load(plan);
    bool started = false;
    archive(entry, started);
    if (!started) return absl::OkStatus();
    if (routing == nullptr) return absl::DataLossError("it runs and has no routing table");
    entry.run = std::make_unique<JobRun>(plan, std::move(routing), core_.options_.job, now);
    archive(*entry.run);
    return absl::OkStatus();
  }
  // Removes a job that LoadJob could not load whole.
  void Unload(const JobId& job) { core_.jobs_.Remove(job); }

  // Live nodes and tasks get their whole time again, and no call is held.
  void Restored(Instant now, Actions& actions) { core_.Restored(now, actions); }

 private:
  struct Counters {
    JobTable& jobs;
    template <typename Archive>
    void serialize(Archive& archive) {
      jobs.SerializeCounters(archive);
    }
  };

  SchedulerCore& core_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_CORE_ARCHIVE_H_
