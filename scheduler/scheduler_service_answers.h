// SchedulerService::Answers: what one step of the core has to say, and to whom. For the two sources
// of the service only.
// Thread safety: values.
#ifndef CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_ANSWERS_H_
#define CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_ANSWERS_H_

#include <memory>
#include <vector>

#include "scheduler/scheduler_service.h"

namespace capstan::scheduler {

struct SchedulerService::Answers {
  struct Node {
    Call<v1::SyncNodeResponse> call;
    NodeReply reply;
  };
  struct Task {
    Call<v1::SyncTaskResponse> call;
    TaskReply reply;
  };
  struct Job {
    Call<v1::GetJobResponse> call;
    absl::Status error;  // Not ok: the rest is empty.
    v1::JobStatus status;
  };
  struct Drain {
    Call<v1::DrainNodeResponse> call;
    DrainReply reply;
  };
  struct Checkpoint {
    Call<v1::SaveCheckpointResponse> call;
    CheckpointReply reply;
  };
  struct Snapshot {
    Call<v1::OpenSnapshotResponse> call;
    SnapshotReply reply;
  };
  struct Manifest {
    CheckpointPublish publish;
    std::shared_ptr<const AdmittedJob> job;
  };
  // A call that the step itself answered; its response is filled in.
  struct Done {
    grpc::ServerUnaryReactor* reactor = nullptr;
    absl::Status status;
    bool after_files = false;  // Its answer may tell of an end.
  };
  // An ended job whose tasks are gone, and what they may have left.
  struct Left {
    std::string folder;
    Incarnation last_life;
  };
  // Of jobs that have ended, and have nobody any more who might read what they began with.
  std::vector<std::shared_ptr<const AdmittedJob>> over;
  std::vector<Done> done;
  std::vector<Node> nodes;
  std::vector<Task> tasks;
  std::vector<Job> jobs;
  std::vector<Drain> drains;
  std::vector<Checkpoint> checkpoints;
  std::vector<Snapshot> snapshots;
  std::vector<Manifest> manifests;
  std::vector<std::string> given_up;  // Folders of checkpoints that can never become complete.
  absl::btree_set<JobId> forgotten;   // Jobs.
  std::vector<JobId> removals;        // Jobs whose older checkpoints may go.
  std::vector<ModelPublish> models;
  std::vector<Left> left;
  std::vector<RecordedEvent> events;
  AdmittedJobs admitted;  // Of the replies.
  JobRecords records;     // Likewise.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_SCHEDULER_SERVICE_ANSWERS_H_
