// SchedulerService::Answers: the results of one step of the core: answers to calls, events and work
// on files. SchedulerService performs them when the step is durable. Only its sources include this
// file. Thread safety: values.
#ifndef CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_ANSWERS_H_
#define CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_ANSWERS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/scheduler_service.h"

namespace capstan::scheduler {

struct SchedulerService::Answers {
  struct Manifest {
    CheckpointPublish publish;
    std::shared_ptr<const AdmittedJob> job;
  };
  // The answer to one call. `fill` writes the response. Null: the response is complete already.
  struct Answer {
    grpc::ServerUnaryReactor* reactor = nullptr;
    absl::Status status = {};
    bool after_files = false;  // Send it after the files are written: it may report a job's end.
    std::function<void(const Answers&)> fill = nullptr;
  };
  // The output folder of an ended job whose tasks are gone. The tasks up to `last_life` may have
  // left staged models there.
  struct Left {
    std::string folder;
    Incarnation last_life;
  };
  std::vector<Answer> answers;
  // Ended jobs whose initial checkpoint no task or server can read any more.
  std::vector<std::shared_ptr<const AdmittedJob>> over;
  std::vector<Manifest> manifests;
  std::vector<std::string> given_up;  // Folders of checkpoints that can never become complete.
  absl::btree_set<JobId> forgotten;   // Jobs that the core has forgotten.
  std::vector<JobId> removals;        // Jobs whose older checkpoints may be removed.
  std::vector<ModelPublish> models;
  std::vector<Left> left;
  std::vector<RecordedEvent> events;
  AdmittedJobs admitted;  // The jobs that `fill` may need.
  JobRecords records;     // The records that `fill` may need.

  void Need(const JobId& job, const AdmittedJobs& jobs) {
    if (const auto it = jobs.find(job); it != jobs.end()) admitted.insert(*it);
  }
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_ANSWERS_H_
