// Cluster id: what tells a scheduler's store from any other, made once, with the store.
//
//   "cluster"   the row that has it: 16 hexadecimal digits
//
// Names of jobs and nodes come again in a store that was begun anew; what is kept elsewhere (logs
// of servers) carries the cluster's id with the name. Thread safety: functions of their arguments.
#ifndef CAPSTAN_SCHEDULER_CLUSTER_ID_H_
#define CAPSTAN_SCHEDULER_CLUSTER_ID_H_

#include <string>

#include "absl/status/statusor.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

// The id that `rows`, all of the store's, have; where they have none, a new one, durably.
// Errors: those of Store::Write.
absl::StatusOr<std::string> ClusterIdOf(Store& store, const StoreRows& rows);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CLUSTER_ID_H_
