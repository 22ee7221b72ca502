// OrphanedLogs: the registered logs of servers that belong to no job of this scheduler. Their jobs
// ran in a cluster whose scheduler lost its store; `capstan job recover` recovers them.
//
//   "orphan/<unique id>"   one row of the store for each job. The rows must survive a restart,
//                          because servers do not register again when the scheduler restarts
//
// A log is an orphan from its server's registration until its job is recovered, until its server
// says that it has removed the log (after --log-grace), or registers without it.
// Thread safety: thread-compatible.
// Invariants: (1) at most kJobsMax jobs; (2) each job has a server that registered with its log.
#ifndef CAPSTAN_SCHEDULER_STATE_ORPHANED_LOGS_H_
#define CAPSTAN_SCHEDULER_STATE_ORPHANED_LOGS_H_

#include <google/protobuf/repeated_field.h>

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/store/job_record.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

struct OrphanedLog {
  std::string damage;               // The reason why it cannot be read. Empty: it can.
  std::vector<StoredShard> shards;  // The shards in the log.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(damage, shards);
  }
};

struct OrphanedJob {
  JobId id;
  std::string bytes;  // The newest record that a server has. Empty: no server has one.
  absl::StatusOr<JobRecord> record;    // `bytes`, decoded. Errors: kNotFound; DecodeJobRecord's.
  std::map<NodeId, OrphanedLog> logs;  // Keyed by the server that has the log.
};

class OrphanedLogs {
 public:
  static constexpr size_t kJobsMax = 200;  // At this limit, logs of further jobs are ignored.

  // Errors: kDataLoss  a row cannot be read; names it.
  static absl::StatusOr<OrphanedLogs> Load(const StoreRows& rows);

  // Records that `node` has registered with the logs of `request`, which hold `stored`, in place of
  // its earlier ones. `known`: the unique ids of this scheduler's jobs. Returns the changed rows,
  // which the caller makes durable.
  std::vector<StoreWrite> Note(const NodeId& node, const v1::RegisterRequest& request,
                               absl::Span<const StoredShard> stored,
                               const std::set<std::string>& known);
  // Records that `node` has removed its logs of the jobs of these unique ids. A repetition changes
  // nothing. Returns the changed rows, which the caller makes durable.
  std::vector<StoreWrite> NoteRemoved(
      const NodeId& node, const google::protobuf::RepeatedPtrField<std::string>& removed);
  // Removes a job, which was recovered. Returns the change for the store.
  StoreWrite Forget(const std::string& unique_id);

  // Keyed by unique id.
  const std::map<std::string, OrphanedJob>& jobs() const { return jobs_; }
  // Returns the unique id of the job that `job` names, which is a job's id or a unique id.
  // Errors: kNotFound.   kFailedPrecondition  several jobs have that id; names them.
  absl::StatusOr<std::string> Find(const std::string& job) const;

 private:
  static StoreWrite Encode(const std::string& unique_id, const OrphanedJob& job);
  // Returns the change for the store of a job that has lost a log; one without logs is removed.
  StoreWrite Rewrite(const std::string& unique_id);

  std::map<std::string, OrphanedJob> jobs_;
};

// Returns the cluster's id, which is the first part of a job's unique id.
std::string ClusterIn(const std::string& unique_id);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STATE_ORPHANED_LOGS_H_
