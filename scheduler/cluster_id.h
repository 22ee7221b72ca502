// Cluster id: a random number that distinguishes a scheduler's store from any other store.
//
//   "cluster"   the row that holds it: 16 hexadecimal digits
//
// A new store uses the same names of jobs and nodes again. Data outside the store (the logs of
// servers) therefore carry the cluster's id beside the name.
// Thread safety: functions of their arguments.
#ifndef CAPSTAN_SCHEDULER_CLUSTER_ID_H_
#define CAPSTAN_SCHEDULER_CLUSTER_ID_H_

#include <string>

#include "absl/status/statusor.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

// Returns the id in `rows`, which are all rows of the store. If they have none, makes a new id and
// writes it durably.
// Errors: those of Store::Write.
absl::StatusOr<std::string> ClusterIdOf(Store& store, const StoreRows& rows);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CLUSTER_ID_H_
