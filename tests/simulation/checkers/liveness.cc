#include "tests/simulation/checkers/liveness.h"

#include <algorithm>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace capstan::sim {
namespace {

std::string Describe(const scheduler::JobView& job) {
  std::string text = absl::StrCat("state ", static_cast<int>(job.state), ", ", job.detail,
                                  job.failure.message.empty() ? "" : ": ", job.failure.message);
  for (const scheduler::TaskView& task : job.tasks) {
    absl::StrAppend(&text, "\n    task ", task.rank.value(), "/", task.incarnation.value(), " on ",
                    task.node, ": ", task.state, " at iteration ", task.iteration.value());
    if (task.wait.what.empty()) continue;
    absl::StrAppend(&text, ", waits ", absl::FormatDuration(task.wait.waited), " for ",
                    task.wait.what, " of ", task.wait.iteration.value(), " from ", task.wait.peer);
  }
  return text;
}

// The task ended itself. max_restarts forgives that, and no task should need to be forgiven.
bool GaveUp(const scheduler::Failure& failure) {
  return failure.reason == scheduler::FailureReason::kInternal ||
         absl::StrContains(failure.message, "has waited");
}

}  // namespace

void Liveness::Happened(const scheduler::Event& event) {
  if (const auto* died = std::get_if<scheduler::NodeDied>(&event)) {
    dead_.insert({died->node, died->incarnation});
    CheckDeath(*died);
    alive_.erase(died->node);
  }
  if (const auto* failed = std::get_if<scheduler::ServerFailed>(&event)) {
    failed_.insert(failed->node);
  }
  if (const auto* joined = std::get_if<scheduler::NodeJoined>(&event)) {
    failed_.erase(joined->node);
    alive_.insert(joined->node);
    joined_[joined->node] = {.at = world_->loop.Now(), .address = joined->address};
  }
  if (const auto* saved = std::get_if<scheduler::CheckpointEnded>(&event)) {
    known_.checkpointed = known_.checkpointed || saved->why.empty();
  }
  if (const auto* phase = std::get_if<scheduler::PhaseStarted>(&event)) {
    const bool trains = phase->phase == scheduler::JobPhase::kTraining;
    if (trains && !known_.trained) trained_at_ = world_->loop.Now();
    known_.trained = known_.trained || trains;
  }
  // Nobody stands still for as long: pauses are short, and what takes long tells how it gets on.
  if (const auto* died = std::get_if<scheduler::TaskDied>(&event);
      died != nullptr && absl::StrContains(died->failure.message, "has not moved on")) {
    Fail(absl::StrCat("liveness: task ", died->task.rank.value(), "/",
                      died->task.incarnation.value(),
                      " was taken for hung: ", died->failure.message));
  }
  if (const auto* died = std::get_if<scheduler::TaskDied>(&event);
      died != nullptr && GaveUp(died->failure) && !HasDeadLink(*died)) {
    Fail(absl::StrCat("liveness: task ", died->task.rank.value(), "/",
                      died->task.incarnation.value(), " gave up: ", died->failure.message));
  }
  if (known_.whole && std::holds_alternative<scheduler::WentBack>(event)) {
    Fail("liveness: the job goes back, and its model is whole");
  }
  if (std::holds_alternative<scheduler::JobStarted>(event)) known_.started = true;
  if (std::holds_alternative<scheduler::JobEnded>(event)) known_.ended = true;
}

// It waits for a server that its daemon reaches no more. While no other daemon has room for it, it
// waits in vain: that other jobs end meanwhile is not for this one to promise.
bool Liveness::HasDeadLink(const scheduler::TaskDied& died) const {
  return std::any_of(world_->dead_links.begin(), world_->dead_links.end(), [&](const auto& link) {
    return link.second == died.node &&
           absl::StrContains(died.failure.message, absl::StrCat(" for ", link.first, " ("));
  });
}

// A living process must not be declared dead if nothing has kept it from being heard for longer
// than a lease, nor while the scheduler is cut off from all processes. A process that was heard
// just now, after all trouble, keeps its name.
void Liveness::CheckDeath(const scheduler::NodeDied& died) {
  const std::optional<Instant> since = world_->alive_since(died.node);
  const Joined& joined = joined_[died.node];
  if (!since || *since > joined.at) return;  // Another process runs.
  const Instant now = world_->loop.Now();
  if (absl::StrContains(died.why, "replaced by")) {
    const absl::Duration silence = world_->silence_of(died);
    const bool heard = silence < kHeardLimit && now - silence > world_->trouble_until;
    if (!heard || absl::EndsWith(died.why, absl::StrCat(" ", joined.address))) return;
    return Fail(absl::StrCat("liveness: ", died.node, " lives and was heard ",
                             absl::FormatDuration(silence), " ago, and was ", died.why));
  }
  if (!absl::StrContains(died.why, "no sync for")) return;
  // Nobody can tell in the case of one node.
  const bool cut_off = cut_since_ && alive_.size() >= 2 &&
                       now >= std::max(*cut_since_, world_->scheduler_late_until) + kNoticeLimit;
  if (!cut_off && now < world_->trouble_until + kForgetLimit) return;
  Fail(absl::StrCat("liveness: ", died.node, " lives, and was declared dead by a scheduler that ",
                    cut_off ? "is cut off itself: " : "could hear it: ", died.why));
}

// Messages that were on their way when the links were cut arrive after that: the scheduler hears
// their senders.
void Liveness::SchedulerCutOff(bool cut) {
  const LinkFaults& link = world_->options.chaos.link;
  const absl::Duration delayed = link.delay > 0 ? link.delay_max : absl::ZeroDuration();
  cut_since_.reset();
  if (cut) cut_since_ = world_->loop.Now() + link.latency_max + delayed;
}

void Liveness::Exported(const TaskKey&, const std::vector<std::vector<float>>&,
                        const std::map<TableId, Version>&) {
  exported_ = true;
}

void Liveness::RoutingSent(const scheduler::Routing& routing) {
  if (routing.generation <= known_.routing.generation) return;
  known_.routing = routing;
  for (const NodeId& server : HoldersOf(routing)) held_.try_emplace(server, world_->loop.Now());
}

// Its values were in memory alone, and all of it is gone, whatever the scheduler knows by now: it
// may have let go of copies by a table that nobody was sent (seed 712460666).
bool Liveness::KilledWithAll() const {
  return known_.trained && !job_->options.log && world_->all_killed.has_value() &&
         *world_->all_killed >= trained_at_;
}

bool Liveness::LostShard() const {
  const auto is_dead = [this](int server) {
    const scheduler::ServerRef& ref = known_.routing.servers[static_cast<size_t>(server)];
    return dead_.contains({ref.node, ref.incarnation}) || failed_.contains(ref.node);
  };
  const std::vector<scheduler::ShardRoute>& shards = known_.routing.shards;
  return std::any_of(shards.begin(), shards.end(), [&](const scheduler::ShardRoute& shard) {
    return is_dead(shard.server) && std::all_of(shard.replicas.begin(), shard.replicas.end(),
                                                [&](const scheduler::ReplicaRef& replica) {
                                                  return !replica.in_sync ||
                                                         is_dead(replica.server);
                                                });
  });
}

bool Liveness::DiskSuffered() const {
  return std::any_of(held_.begin(), held_.end(), [this](const auto& held) {
    const auto suffered = world_->disks_suffered.find(held.first);
    return suffered != world_->disks_suffered.end() && suffered->second >= held.second;
  });
}

bool Liveness::MayFail(const scheduler::Failure& failure) const {
  if (known_.whole) return false;
  const JobOptions& job = job_->options;
  // Checkpoints that the copy of the store knows may have been removed since as too old.
  if (world_->faults[Fault::kStorePutBack] > 0 &&
      absl::StrContains(failure.message, "/manifest.pb: no such file or folder")) {
    return true;
  }
  switch (failure.reason) {
    case scheduler::FailureReason::kServerLost:
      if (!LostShard() && !KilledWithAll()) return false;
      if (ended_before_) return true;  // Its log went when it ended (seed 955688635).
      if (failed_.size() >= static_cast<size_t>(world_->options.servers)) return true;  // All.
      return known_.trained && !known_.checkpointed && (!job.log || DiskSuffered());
    default:
      return false;
  }
}

bool Liveness::EndedForOlderStore(const std::optional<scheduler::JobView>& job) const {
  return job.has_value() && job->state == scheduler::JobState::kFailed &&
         world_->faults[Fault::kStorePutBack] > 0 &&
         absl::StrContains(job->failure.message, "store is an older copy of itself");
}

void Liveness::CheckEnd(const std::optional<scheduler::JobView>& job) {
  if (!job.has_value()) return Fail("liveness: the scheduler does not know the job");
  switch (job->state) {
    case scheduler::JobState::kSucceeded:
      if (!exported_) Fail("liveness: the job succeeded and no model was written");
      return;
    case scheduler::JobState::kStopped:
      if (job_->stop_asked) return;
      return Fail("liveness: nobody has stopped the job, and it is stopped");
    case scheduler::JobState::kFailed:
      if (MayFail(job->failure)) return;
      return Fail(absl::StrCat("liveness: the job may not fail like this: ", Describe(*job)));
    default:
      return Fail(
          absl::StrCat("liveness: the job has not ended ",
                       absl::FormatDuration(world_->options.JobTime(job_->options)),
                       " after the world healed and those before it ended: ", Describe(*job)));
  }
}

}  // namespace capstan::sim
