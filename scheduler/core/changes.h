// Changes: what a step of the core changed of what must survive the scheduler, by name.
//
// scheduler/store/state_codec.h turns it into StoreWrites, from the core as it is after that step.
// They are durable BEFORE any answer of the same or a later step leaves. Thread safety: values.
#ifndef CAPSTAN_SCHEDULER_CORE_CHANGES_H_
#define CAPSTAN_SCHEDULER_CORE_CHANGES_H_

#include <set>

#include "common/types/ids.h"

namespace capstan::scheduler {

struct Changes {
  bool nodes = false;         // Daemons, task slots, desired states, and the counters.
  std::set<JobId> jobs;       // Where a job stands.
  std::set<JobId> routings;   // A job's routing table.
  std::set<JobId> forgotten;  // All that there is of a job goes.

  bool empty() const { return !nodes && jobs.empty() && routings.empty() && forgotten.empty(); }
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_CHANGES_H_
