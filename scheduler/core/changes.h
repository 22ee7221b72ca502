// Changes: names the durable state that a step of the core has changed.
//
// scheduler/store/state_codec.h makes StoreWrites from it and from the core after that step. They
// are durable BEFORE any answer of the same or a later step leaves. Thread safety: values.
#ifndef CAPSTAN_SCHEDULER_CORE_CHANGES_H_
#define CAPSTAN_SCHEDULER_CORE_CHANGES_H_

#include <set>

#include "common/types/ids.h"

namespace capstan::scheduler {

struct Changes {
  bool nodes = false;         // Daemons, task slots, desired states, and the counters.
  std::set<JobId> jobs;       // Jobs with a new state.
  std::set<JobId> routings;   // Jobs with a new routing table.
  std::set<JobId> forgotten;  // Jobs of which everything is removed.

  bool empty() const { return !nodes && jobs.empty() && routings.empty() && forgotten.empty(); }
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_CHANGES_H_
