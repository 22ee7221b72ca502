// Faults of machines: of their clocks and their disks.
#include "absl/strings/str_cat.h"
#include "tests/simulation/nemesis/nemesis.h"

namespace capstan::sim {

void Nemesis::JumpClock() {
  const auto host = static_cast<int>(prng_.Between(0, cluster_->hosts() - 1));
  const absl::Duration jump =
      prng_.Between(absl::Milliseconds(1), world_->options.chaos.clock_jump_max);
  ++world_->faults[Fault::kClockJump];
  Narrate(absl::StrCat("the clock of host ", host, " jumps by ", absl::FormatDuration(jump)));
  cluster_->clock(host).Jump(jump);
  world_->TroubleFor(absl::ZeroDuration());
  cluster_->ClockJumped(host);
}

// Stops the clock of the scheduler's or of a worker's host for a while. The processes there are
// late by that time, and do not know it.
void Nemesis::FreezeClock() {
  const int workers = world_->options.workers;
  const auto chosen = static_cast<int>(machines_prng_.Between(0, workers));
  const int host = chosen == 0 ? 0 : world_->options.servers + chosen;
  const absl::Duration time =
      machines_prng_.Between(absl::Milliseconds(50), world_->options.chaos.pause_max);
  ++world_->faults[Fault::kClockFrozen];
  Narrate(
      absl::StrCat("the clock of host ", host, " stands still for ", absl::FormatDuration(time)));
  cluster_->clock(host).Freeze(time);
  world_->TroubleFor(time);
  if (host == 0) world_->SchedulerLateFor(time);
}

// Bits rot unnoticed until they are read.
void Nemesis::FlipStoredBit() {
  auto& servers = cluster_->servers();
  const auto last = static_cast<int64_t>(servers.size()) - 1;
  servers[static_cast<size_t>(machines_prng_.Between(0, last))]->FlipStoredBit();
}

// Starts a second process for a server on a worker's host, for a while. In half of the cases the
// server is stopped first, the other process has a copy of its folder and takes its name, and the
// server is started again meanwhile. Otherwise the other process has the identity alone, and is
// refused while the server is heard. (What a server acknowledges after its folder was copied is not
// in the copy: server/log/README.md.)
void Nemesis::StartTwice() {
  auto& servers = cluster_->servers();
  const auto last = static_cast<int64_t>(servers.size()) - 1;
  SimServer* const server = servers[static_cast<size_t>(machines_prng_.Between(0, last))].get();
  const auto worker = static_cast<int>(machines_prng_.Between(1, world_->options.workers));
  const absl::Duration time = machines_prng_.Between(absl::Seconds(1), absl::Seconds(8));
  const bool stopped = machines_prng_.Chance(0.5);
  if (!server->process().alive()) return;
  const std::string name = server->process().name();
  ++world_->faults[Fault::kStartedTwice];
  Narrate(absl::StrCat("starts ", name, " twice for ", absl::FormatDuration(time),
                       stopped ? ", the second on a copy of the first one's folder" : ""));
  world_->DiskSuffered(name);
  if (stopped) {
    server->Kill(SimServer::DiskFate::kKept);
    world_->loop.After(time / 2, [server] {
      if (!server->process().alive()) server->Start();
    });
  }
  SimServer* const copy = cluster_->StartTwice(*server, world_->options.servers + worker, stopped);
  UndoAfter(time, [this, name, copy] {
    if (copy->registered()) ++world_->faults[Fault::kTookName];
    copy->Retire();
    world_->DiskSuffered(name);
    world_->TroubleFor(absl::ZeroDuration());
  });
}

}  // namespace capstan::sim
