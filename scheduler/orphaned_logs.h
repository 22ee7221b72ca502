// OrphanedLogs: the logs that servers have registered with and that belong to no job of this
// scheduler: jobs of a cluster whose scheduler has lost its store. `capstan job recover` takes them
// up.
//
//   "orphan/<unique id>"   a row of the store for each: servers do not register again only because
//                          this scheduler has died
//
// A log is an orphan from the registration of its server on, until its job is taken up or no server
// that registers has it any more. Thread safety: thread-compatible.
// Invariants: (1) at most kJobsMax jobs; (2) every one has a server that registered with its log.
#ifndef CAPSTAN_SCHEDULER_ORPHANED_LOGS_H_
#define CAPSTAN_SCHEDULER_ORPHANED_LOGS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/messages.h"
#include "scheduler/store/job_record.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

struct OrphanedLog {
  std::string damage;               // Why it cannot be read. Empty: it can.
  std::vector<StoredShard> shards;  // That it holds.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(damage, shards);
  }
};

struct OrphanedJob {
  JobId id;
  std::string bytes;                 // Of the newest record that a server has; empty: of none.
  absl::StatusOr<JobRecord> record;  // Those bytes. Errors: kNotFound; those of DecodeJobRecord.
  absl::btree_map<NodeId, OrphanedLog> logs;  // By the server that has it.
};

class OrphanedLogs {
 public:
  static constexpr size_t kJobsMax = 200;  // Later ones are passed over until some are gone.

  // Errors: kDataLoss  a row cannot be read; names it.
  static absl::StatusOr<OrphanedLogs> Load(const StoreRows& rows);

  // `node` has registered with these logs, which hold `stored`. `known`: the unique ids of this
  // scheduler's jobs. Returns what is to be made durable.
  std::vector<StoreWrite> Note(const NodeId& node, const v1::RegisterRequest& request,
                               absl::Span<const StoredShard> stored,
                               const absl::btree_set<std::string>& known);
  // Its job was taken up.
  StoreWrite Forget(const std::string& unique_id);

  const absl::btree_map<std::string, OrphanedJob>& jobs() const { return jobs_; }  // By unique id.
  // The unique id of the job that is meant by a job's id or by a unique id.
  // Errors: kNotFound.   kFailedPrecondition  several have that id; names them.
  absl::StatusOr<std::string> Find(const std::string& job) const;

 private:
  static StoreWrite Encode(const std::string& unique_id, const OrphanedJob& job);

  absl::btree_map<std::string, OrphanedJob> jobs_;
};

// The cluster in a job's unique id.
std::string ClusterIn(const std::string& unique_id);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_ORPHANED_LOGS_H_
