#include "scheduler/core/job/parts/job_shared.h"

#include <utility>

namespace capstan::scheduler {
namespace {

ShardMap::Options MapOptions(const JobPlan& plan, ShardMap::Options options) {
  options.replicas = plan.replicas;
  options.servers = plan.servers;
  return options;
}

}  // namespace

JobShared::JobShared(const JobPlan& job_plan, std::shared_ptr<const Routing> table,
                     const JobRunOptions& job_options, Instant now, Generation first)
    : plan(job_plan),
      options(job_options),
      shards(*table, MapOptions(plan, options.shards)),
      routing(std::move(table)),
      started(now),
      tasks(plan.workers, options.tasks),
      members(shards.Primaries(), now, first),
      epochs(plan),
      training_time(plan.ttl_seconds) {}

bool JobShared::HasBegun() const {
  return epochs.returned() || (phase != JobPhase::kPlacing && phase != JobPhase::kStarting);
}

void JobShared::SetPhase(JobPhase next, Events& events) {
  phase = next;
  ++decisions;
  ++revision;
  events.push_back(PhaseStarted{plan.id, phase, epochs.epoch()});
}

void JobShared::SetTrained(absl::Duration trained, Instant now) {
  training_time.Set(trained);
  members.SetClock(training_time.ticks_seconds(), now);
}

}  // namespace capstan::scheduler
