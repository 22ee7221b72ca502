// JobQueue: jobs that wait for a place, first come first served, each started whole (gang start).
//
// Only the head may start; a small job behind a large one waits, so no job starves. A job is passed
// over while the cluster is too small for it, even if nothing else ran: it would hold up the others
// until more servers or workers (or GPUs) join, which may be never.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_PLACEMENT_JOB_QUEUE_H_
#define CAPSTAN_SCHEDULER_CORE_PLACEMENT_JOB_QUEUE_H_

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/devices/devices.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/plugin_rules.h"

namespace capstan::scheduler {

// The kinds of workers and servers that a job needs, whatever their numbers.
struct JobNeed {
  JobNeed(const DeviceNeed& device_of_tasks = {},  // NOLINT: most jobs need no rule.
          std::vector<PluginRule> rules_of_servers = {})
      : device(device_of_tasks), rules(std::move(rules_of_servers)) {}
  DeviceNeed device;              // Every task needs it.
  std::vector<PluginRule> rules;  // Every server must have all of them.
  friend bool operator==(const JobNeed&, const JobNeed&) = default;
};

// The resources that the cluster has now for a job with a certain need.
struct Supply {
  int slots_free = 0;   // Task slots, with the GPUs for a task in each.
  int slots = 0;        // Task slots of live workers, free or not, with their GPUs.
  int servers = 0;      // Alive, with the rules.
  std::string no_gpus;  // GPUs are needed and slots is 0: what each worker lacks.
  // Rules are needed: the servers that are alive and lack one, "server-1, server-2".
  std::string without_rules;
  friend bool operator==(const Supply&, const Supply&) = default;
};
// The supply of every need that JobQueue::Needs() names.
using Supplies = std::vector<std::pair<JobNeed, Supply>>;

class JobQueue {
 public:
  static constexpr size_t kPendingMax = 1000;

  // Errors: kResourceExhausted  kPendingMax jobs wait.
  // servers 0: any number, at least 1.
  absl::Status Push(const JobId& job, int workers, int servers, const JobNeed& need = {});
  void Remove(const JobId& job);  // No effect if not waiting.

  std::vector<JobNeed> Needs() const;  // The needs of the jobs that wait, each once.
  // The first job that is not passed over, if it fits now.
  std::optional<JobId> Startable(const Supplies& supplies) const;

  // Names the resources that the cluster lacks for `job`, even if no other job ran. Empty: it lacks
  // none, or the job does not wait.
  std::string WhyTooSmall(const JobId& job, const Supplies& supplies) const;

  // One sentence: why `job` waits. REQUIRES: it waits.
  std::string WhyWaiting(const JobId& job, const Supplies& supplies) const;

  std::vector<JobId> Jobs() const;  // Ordered by submission.

 private:
  struct Waiting {
    JobId job;
    int workers = 0;
    int servers = 0;
    JobNeed need;
  };
  static const Supply& SupplyOf(const Waiting& waiting, const Supplies& supplies);
  static bool IsPassedOver(const Waiting& waiting, const Supplies& supplies);
  static std::string WhatIsMissing(const Waiting& waiting, const Supplies& supplies);

  std::deque<Waiting> waiting_;  // At most kPendingMax.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLACEMENT_JOB_QUEUE_H_
