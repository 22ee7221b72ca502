// SchedulerService::Answers: what one step of the core has to say, and to whom. For the two sources
// of the service only.
// Thread safety: values.
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
  // What a call is told. `fill` writes its response; nothing: it is filled in already.
  struct Answer {
    grpc::ServerUnaryReactor* reactor = nullptr;
    absl::Status status = {};
    bool after_files = false;  // It may tell of an end.
    std::function<void(const Answers&)> fill = nullptr;
  };
  // An ended job whose tasks are gone, and what they may have left.
  struct Left {
    std::string folder;
    Incarnation last_life;
  };
  std::vector<Answer> answers;
  // Of jobs that have ended, and have nobody any more who might read what they began with.
  std::vector<std::shared_ptr<const AdmittedJob>> over;
  std::vector<Manifest> manifests;
  std::vector<std::string> given_up;  // Folders of checkpoints that can never become complete.
  absl::btree_set<JobId> forgotten;   // Jobs.
  std::vector<JobId> removals;        // Jobs whose older checkpoints may go.
  std::vector<ModelPublish> models;
  std::vector<Left> left;
  std::vector<RecordedEvent> events;
  AdmittedJobs admitted;  // What `fill` may want.
  JobRecords records;     // Likewise.

  void Need(const JobId& job, const AdmittedJobs& jobs) {
    if (const auto it = jobs.find(job); it != jobs.end()) admitted.insert(*it);
  }
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_ANSWERS_H_
