// Calls of users, on the scheduler's own machine.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "tests/simulation/shells/sim_scheduler.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kUserLimit = absl::Seconds(30);  // Limit of a held call.

}  // namespace

void SimScheduler::Ask(
    const std::function<absl::Status(scheduler::Ticket, scheduler::Actions&)>& call) {
  process_.Arrive([this, call] {
    if (core_ == nullptr) return;
    const scheduler::Ticket ticket(next_ticket_++);
    scheduler::Actions actions;
    const absl::Status status = call(ticket, actions);
    if (!status.ok()) world_->trace.Narrate(absl::StrCat("a user is told: ", status.message()));
    Commit(std::move(actions));
  });
}

void SimScheduler::Drain(const NodeId& node, std::function<void()> safe) {
  Ask([this, node, safe = std::move(safe)](scheduler::Ticket ticket, scheduler::Actions& actions) {
    drains_[ticket] = safe;
    return core_->DrainNode(ticket, node, /*cancel=*/false, kUserLimit, process_.Now(), actions);
  });
}

void SimScheduler::EndDrain(const NodeId& node) {
  Ask([this, node](scheduler::Ticket ticket, scheduler::Actions& actions) {
    return core_->DrainNode(ticket, node, /*cancel=*/true, kUserLimit, process_.Now(), actions);
  });
}

void SimScheduler::SaveCheckpoint(const JobId& job) {
  Ask([this, job](scheduler::Ticket ticket, scheduler::Actions& actions) {
    return core_->SaveCheckpoint(ticket, job, std::nullopt, kUserLimit, process_.Now(), actions);
  });
}

void SimScheduler::StopJob(JobWorld* job) {
  Ask([this, job](scheduler::Ticket, scheduler::Actions& actions) {
    ++world_->faults[Fault::kJobStopped];
    job->stop_asked = true;
    return core_->StopJob(job->id(), process_.Now(), actions).status();
  });
}

void SimScheduler::Answer(const scheduler::DrainReply& reply) {
  const auto waits = drains_.extract(reply.ticket);
  if (!waits.empty() && reply.safe_to_stop) waits.mapped()();
}

// A checkpoint that a user was told of must be whole, to the last byte.
void SimScheduler::Answer(const scheduler::CheckpointReply& reply) {
  if (!reply.status.ok() || reply.id == CheckpointId(0)) return;
  ++world_->reached[Reached::kCheckpointSaved];
  world_->shared_disk.SetRates({});  // The checker's disk has no faults.
  const auto verified = VerifyCheckpoint(world_->shared_disk, reply.folder);
  world_->shared_disk.SetRates(world_->checkpoint_disk_rates);
  // Its bits may have changed since.
  if (verified.ok() || world_->faults[Fault::kCheckpointBitFlip] > 0) return;
  world_->failure = absl::StrCat("liveness: a user was told that checkpoint ", reply.id.value(),
                                 " is complete: ", verified.status().ToString());
}

}  // namespace capstan::sim
