// Faults that are aimed at one of the jobs.
#include <optional>
#include <vector>

#include "tests/simulation/nemesis/nemesis.h"

namespace capstan::sim {

JobWorld& Nemesis::DrawJob() {
  const auto last = static_cast<int64_t>(world_->jobs.size()) - 1;
  return *world_->jobs[static_cast<size_t>(jobs_prng_.Between(0, last))];
}

SimServer* Nemesis::PrimaryOf(const JobWorld& job, const ShardKey& shard) {
  for (const scheduler::ShardRoute& route : job.routing.shards) {
    if (route.key != shard) continue;
    const NodeId& node = job.routing.servers[static_cast<size_t>(route.server)].node;
    for (const auto& server : cluster_->servers()) {
      if (server->process().name() == node && server->process().alive()) return server.get();
    }
  }
  return nullptr;
}

void Nemesis::KillPrimaries() {
  const JobWorld& job = DrawJob();
  const auto count = static_cast<int64_t>(job.routing.shards.size());
  if (count == 0) return;
  const ShardKey shard = job.routing.shards[static_cast<size_t>(prng_.Between(0, count - 1))].key;
  SimServer* first = PrimaryOf(job, shard);
  if (first == nullptr) return;
  Kill(first, world_->options.chaos.down_max);
  world_->loop.After(prng_.Between(absl::Milliseconds(600), absl::Seconds(4)),
                     [this, &job, shard, first] {
                       SimServer* heir = PrimaryOf(job, shard);
                       if (healed_ || heir == nullptr || heir == first) return;
                       ++world_->faults[Fault::kPrimaryThenNewPrimaryKilled];
                       Kill(heir, world_->options.chaos.down_max);
                     });
}

// The task wakes up before its daemon does, which would end it; by then it is taken for dead, and
// the job may have gone back.
void Nemesis::StrandExporter() {
  std::optional<scheduler::JobView> job;
  for (const auto& each : world_->jobs) {
    const auto view = cluster_->scheduler().Job(each->id());
    if (view && view->phase == scheduler::JobPhase::kExporting) job = view;
  }
  if (!job) return;
  const absl::Duration time = prng_.Between(absl::Seconds(4), absl::Seconds(20));
  for (const scheduler::TaskView& task : job->tasks) {
    for (const auto& worker : cluster_->workers()) {
      if (task.state != "exporting" || worker->process().name() != task.node) continue;
      PauseFor(&worker->process(), time, Fault::kWorkerPaused);
      for (Process* each : worker->TaskProcesses())
        PauseFor(each, time * 3 / 4, Fault::kTaskPaused);
    }
  }
  for (const auto& server : cluster_->servers()) {
    Kill(server.get(), world_->options.chaos.down_max);
  }
}

}  // namespace capstan::sim
