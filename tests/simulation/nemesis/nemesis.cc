#include "tests/simulation/nemesis/nemesis.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan::sim {

Nemesis::Nemesis(World* world, Cluster* cluster)
    : world_(world),
      cluster_(cluster),
      prng_(Prng(world->options.seed).Fork(4)),
      aimed_prng_(Prng(world->options.seed).Fork(12)),
      users_prng_(Prng(world->options.seed).Fork(15)),
      machines_prng_(Prng(world->options.seed).Fork(19)),
      jobs_prng_(Prng(world->options.seed).Fork(41)),
      stores_prng_(Prng(world->options.seed).Fork(47)),
      instants_prng_(Prng(world->options.seed).Fork(52)) {}

void Nemesis::Start() {
  const ChaosOptions& chaos = world_->options.chaos;
  world_->network.set_faults(chaos.link);
  if (chaos.link.any()) world_->TroubleFor(world_->options.chaos_time);
  const double rate = chaos.disk_fault;
  // A lie costs nothing while another copy of the shard lives. Nothing is promised where all lose
  // their power at once and one of them lied.
  const bool may_lie = !world_->AnyJob([](const JobOptions& job) { return job.replicas == 0; }) &&
                       chaos.kill_all == absl::InfiniteDuration();
  world_->disk_rates = {.disk_full = rate / 4,
                        .write_error = rate / 2,
                        .read_error = rate,
                        .sync_error = rate / 2,
                        .lying_sync = may_lie ? rate : 0,
                        .bit_flip_on_read = rate};
  for (const auto& server : cluster_->servers()) server->SetDiskRates();
  Every(chaos.partition, &Nemesis::Partition);
  Every(chaos.clog, &Nemesis::ClogLinks);
  Every(chaos.kill_scheduler, &Nemesis::KillScheduler);
  Every(chaos.kill_server, &Nemesis::KillServer);
  Every(chaos.kill_primaries, &Nemesis::KillPrimaries);
  Every(chaos.kill_all, &Nemesis::KillAll);
  Every(chaos.kill_worker, &Nemesis::KillWorker);
  Every(chaos.kill_task, &Nemesis::KillTask);
  Every(chaos.pause_scheduler, &Nemesis::PauseScheduler);
  Every(chaos.pause_server, &Nemesis::PauseServer);
  Every(chaos.pause_worker, &Nemesis::PauseWorker);
  Every(chaos.pause_task, &Nemesis::PauseTask);
  Every(chaos.strand_exporter, &Nemesis::StrandExporter);
  Every(chaos.clock_jump, &Nemesis::JumpClock);
  Once(chaos.isolate_scheduler, &Nemesis::IsolateScheduler);
  Once(chaos.strand_reader, &Nemesis::StrandReader);
  Once(chaos.join_behind, &Nemesis::JoinBehind);
  Once(chaos.kill_link, &Nemesis::KillLink);
  Every(chaos.freeze_clock, &Nemesis::FreezeClock);
  Every(chaos.flip_stored_bit, &Nemesis::FlipStoredBit);
  Every(chaos.start_twice, &Nemesis::StartTwice);
  Every(chaos.drain, &Nemesis::Drain);
  Every(chaos.leave, &Nemesis::Leave);
  Every(chaos.save, &Nemesis::SaveCheckpoint);
  Once(chaos.stop, &Nemesis::StopJob);
  if (chaos.overrun_moment || chaos.overrun_by_one) {
    world_->on_snapshot_asked = [this] { OverrunMoment(); };
  }
  StartStores();
  StartInstants();
}

void Nemesis::Once(absl::Duration after, void (Nemesis::*strike)()) {
  if (after == absl::InfiniteDuration()) return;
  world_->loop.After(after, [this, strike] {
    if (!healed_) (this->*strike)();
  });
}

void Nemesis::Every(absl::Duration interval, void (Nemesis::*strike)()) {
  if (interval == absl::InfiniteDuration()) return;
  world_->loop.After(prng_.Between(interval / 10, interval * 19 / 10), [this, interval, strike] {
    if (healed_) return;
    (this->*strike)();
    Every(interval, strike);
  });
}

void Nemesis::Heal() {
  healed_ = true;
  Narrate("the world heals");
  LinkFaults whole;
  whole.latency_max = world_->options.chaos.link.latency_max;
  world_->network.set_faults(whole);
  world_->disk_rates = {};
  for (const auto& server : cluster_->servers()) server->SetDiskRates();
  HealStores();
  for (std::function<void()>& undo : undo_) {
    if (undo) std::exchange(undo, nullptr)();
  }
  const auto revive = [](auto& node) {
    if (!node.process().alive()) node.Start();
    node.process().Resume();
  };
  revive(cluster_->scheduler());
  for (const auto& server : cluster_->servers()) revive(*server);
  for (const auto& worker : cluster_->workers()) {
    revive(*worker);
    for (Process* task : worker->TaskProcesses()) task->Resume();
  }
  for (const NodeId& node : ever_drained_) cluster_->scheduler().EndDrain(node);
}

void Nemesis::Narrate(const std::string& text) {
  world_->trace.Narrate(absl::StrCat("nemesis: ", text));
}

// ---------------------------------------------------------------- the network

void Nemesis::DrawSides(std::vector<int>* one, std::vector<int>* other) {
  const int servers = world_->options.servers;
  const int workers = world_->options.workers;
  const auto add_role = [&](int role, std::vector<int>* side) {
    const int first = role == 0 ? 0 : role == 1 ? 1 : 1 + servers;
    const int count = role == 0 ? 1 : role == 1 ? servers : workers;
    for (int i = 0; i < count; ++i) side->push_back(first + i);
  };
  const auto role = static_cast<int>(prng_.Between(0, 2));
  const auto against = static_cast<int>(prng_.Between(0, 2));
  add_role(role, one);
  add_role(against, other);
  // A whole role, or one host of it.
  if (prng_.Chance(0.6)) {
    const auto chosen =
        static_cast<size_t>(prng_.Between(0, static_cast<int64_t>(one->size()) - 1));
    *one = {(*one)[chosen]};
  }
}

// Each host on one of two islands, so that a primary is cut off together with some of its readers.
void Nemesis::DrawIslands(std::vector<int>* one, std::vector<int>* other) {
  const int hosts = 1 + world_->options.servers + world_->options.workers;
  for (int host = 0; host < hosts; ++host) (prng_.Chance(0.5) ? one : other)->push_back(host);
}

// Pauses tasks for most of a cut of this length.
void Nemesis::SleepInside(absl::Duration cut) {
  for (const auto& worker : cluster_->workers()) {
    for (Process* task : worker->TaskProcesses()) {
      if (prng_.Chance(0.3))
        PauseFor(task, prng_.Between(cut / 3, cut * 9 / 10), Fault::kTaskPaused);
    }
  }
}

void Nemesis::Partition() {
  std::vector<int> one;
  std::vector<int> other;
  const bool islands = prng_.Chance(0.3);
  if (islands) {
    DrawIslands(&one, &other);
  } else {
    DrawSides(&one, &other);
  }
  const bool both = islands || prng_.Chance(0.5);
  ++world_->faults[both ? Fault::kPartitionTwoWay : Fault::kPartitionOneWay];
  std::vector<std::pair<int, int>> ways;
  for (const int from : one) {
    for (const int to : other) {
      if (from == to) continue;
      ways.emplace_back(from, to);
      if (both) ways.emplace_back(to, from);
    }
  }
  if (!both && prng_.Chance(0.5)) {
    for (auto& [from, to] : ways) std::swap(from, to);
  }
  const absl::Duration time = prng_.Between(absl::Milliseconds(100), world_->options.chaos.cut_max);
  Narrate(absl::StrCat("cuts hosts ", absl::StrJoin(one, ","), both ? " <-> " : " -> ",
                       absl::StrJoin(other, ","), " for ", absl::FormatDuration(time)));
  for (const auto& [from, to] : ways) world_->network.Cut(from, to);
  // A task that sleeps until others are routed elsewhere asks its old primary when it wakes up.
  if (islands) SleepInside(time);
  world_->TroubleFor(time);
  UndoAfter(time, [this, ways] {
    for (const auto& [from, to] : ways) world_->network.Mend(from, to);
  });
}

void Nemesis::UndoAfter(absl::Duration time, std::function<void()> undo) {
  const size_t index = undo_.size();
  undo_.push_back(std::move(undo));
  world_->loop.After(time, [this, index] {
    if (undo_[index]) std::exchange(undo_[index], nullptr)();
  });
}

void Nemesis::CutOff(const std::vector<int>& one, const std::vector<int>& other,
                     absl::Duration time, std::function<void()> mended) {
  const auto each = [this, one, other](void (SimNetwork::*change)(int, int)) {
    for (const int from : one) {
      for (const int to : other) {
        (world_->network.*change)(from, to);
        (world_->network.*change)(to, from);
      }
    }
  };
  each(&SimNetwork::Cut);
  world_->TroubleFor(time);
  UndoAfter(time, [each, mended = std::move(mended)] {
    each(&SimNetwork::Mend);
    if (mended) mended();
  });
}

// It lives, and nobody reaches it. Once in a world: jobs are short.
void Nemesis::IsolateScheduler() {
  ++world_->faults[Fault::kSchedulerIsolated];
  const absl::Duration time =
      aimed_prng_.Between(absl::Seconds(4), world_->options.chaos.isolation_max);
  Narrate(absl::StrCat("isolates the scheduler for ", absl::FormatDuration(time)));
  std::vector<int> all;
  for (int host = 1; host < cluster_->hosts(); ++host) all.push_back(host);
  world_->Tell([](Checker& checker) { checker.SchedulerCutOff(true); });
  CutOff({0}, all, time,
         [this] { world_->Tell([](Checker& checker) { checker.SchedulerCutOff(false); }); });
}

// The reader goes on asking the primary that was cut off with it, for longer than that one has a
// right to answer by itself.
void Nemesis::StrandReader() {
  const JobWorld& job = world_->first_job();
  const auto count = static_cast<int64_t>(job.routing.shards.size());
  if (count == 0) return;
  const ShardKey shard =
      job.routing.shards[static_cast<size_t>(aimed_prng_.Between(0, count - 1))].key;
  SimServer* primary = PrimaryOf(job, shard);
  if (primary == nullptr) return;
  ++world_->faults[Fault::kReaderStranded];
  const absl::Duration time = aimed_prng_.Between(absl::Seconds(4), absl::Seconds(9));
  Narrate(absl::StrCat("cuts off ", primary->process().name(), " with the reader for ",
                       absl::FormatDuration(time)));
  CutOffTogether({primary->host(), cluster_->hosts() - 1}, time);
}

void Nemesis::CutOffTogether(const std::vector<int>& island, absl::Duration time) {
  std::vector<int> others;
  for (int host = 0; host < cluster_->hosts(); ++host) {
    if (std::find(island.begin(), island.end(), host) == island.end()) others.push_back(host);
  }
  CutOff(island, others, time);
}

// The scheduler hears one worker daemon only, whose task dies: the next one begins where the others
// were when they were heard last, which is behind what they keep rows of.
void Nemesis::JoinBehind() {
  auto& workers = cluster_->workers();
  const auto last = static_cast<int64_t>(workers.size()) - 1;
  const auto heard = static_cast<size_t>(aimed_prng_.Between(0, last));
  std::vector<int> others;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (i != heard) others.push_back(1 + world_->options.servers + static_cast<int>(i));
  }
  const std::vector<Process*> tasks = workers[heard]->TaskProcesses();
  if (!tasks.empty()) {
    ++world_->faults[Fault::kJoinedBehind];
    Narrate(absl::StrCat("lets the scheduler hear ", workers[heard]->process().name(), " alone"));
    CutOff({0}, others, aimed_prng_.Between(absl::Seconds(1), absl::Milliseconds(2800)));
    world_->loop.After(aimed_prng_.Between(absl::ZeroDuration(), absl::Seconds(1)),
                       [this, worker = workers[heard].get()] {
                         const std::vector<Process*> left = worker->TaskProcesses();
                         if (!healed_ && !left.empty()) worker->KillTask(left.front());
                       });
  }
  Once(world_->options.chaos.join_behind, &Nemesis::JoinBehind);
}

// Only the servers know what the tasks had done since their last report.
void Nemesis::OverrunMoment() {
  const auto job = cluster_->scheduler().Job(world_->first_job().id());
  if (healed_ || !job || job->phase != scheduler::JobPhase::kTraining) return;
  if (world_->options.chaos.overrun_by_one) OverrunByOne();
  if (!world_->options.chaos.overrun_moment || overrun_ || unheard_) return;
  overrun_ = true;
  ++world_->faults[Fault::kMomentOverrun];
  if (stores_prng_.Chance(0.5)) return OverrunUnheard();
  Narrate("lets no worker hear the scheduler any more");
  std::vector<int> workers;
  for (int host = 1 + world_->options.servers; host < cluster_->hosts(); ++host) {
    workers.push_back(host);
  }
  CutOff({0}, workers, absl::Milliseconds(2800));
  Once(aimed_prng_.Between(absl::Milliseconds(500), absl::Milliseconds(2700)),
       &Nemesis::KillSchedulerAndWorkers);
}

void Nemesis::KillSchedulerAndWorkers() {
  Narrate("kills the scheduler and all workers");
  KillScheduler();
  KillWorkers();
}

void Nemesis::ClogLinks() {
  std::vector<int> one;
  std::vector<int> other;
  DrawSides(&one, &other);
  ++world_->faults[Fault::kClogThenBurst];
  const absl::Duration time = prng_.Between(absl::Milliseconds(100), world_->options.chaos.cut_max);
  Narrate(absl::StrCat("clogs hosts ", absl::StrJoin(one, ","), " -> ", absl::StrJoin(other, ","),
                       " for ", absl::FormatDuration(time)));
  std::vector<std::pair<int, int>> ways;
  for (const int from : one) {
    for (const int to : other) {
      if (from != to) ways.emplace_back(from, to);
    }
  }
  for (const auto& [from, to] : ways) world_->network.Clog(from, to);
  world_->TroubleFor(time);
  UndoAfter(time, [this, ways] {
    for (const auto& [from, to] : ways) world_->network.Unclog(from, to);
  });
}

// ---------------------------------------------------------------- processes

void Nemesis::RestartLater(Process* process, const std::function<void()>& start) {
  const absl::Duration down = prng_.Between(absl::Milliseconds(10), world_->options.chaos.down_max);
  world_->loop.After(down, [process, start] {
    if (!process->alive()) start();
  });
}

void Nemesis::Pause(Process* process, Fault fault) {
  PauseFor(process, prng_.Between(absl::Milliseconds(50), world_->options.chaos.pause_max), fault);
}

void Nemesis::PauseFor(Process* process, absl::Duration time, Fault fault) {
  if (!process->alive() || process->paused()) return;
  ++world_->faults[fault];
  Narrate(absl::StrCat("pauses ", process->name(), " for ", absl::FormatDuration(time)));
  process->Pause();
  world_->TroubleFor(time);
  if (process == &cluster_->scheduler().process()) world_->SchedulerLateFor(time);
  world_->loop.After(time, [process, incarnation = process->incarnation()] {
    if (process->incarnation() == incarnation) process->Resume();
  });
}

void Nemesis::KillScheduler() {
  SimScheduler& scheduler = cluster_->scheduler();
  if (!scheduler.process().alive()) return;
  ++world_->faults[Fault::kSchedulerKilled];
  Narrate("kills the scheduler");
  scheduler.process().Kill();
  world_->TroubleFor(world_->options.chaos.down_max);
  RestartLater(&scheduler.process(), [&scheduler] { scheduler.Start(); });
}

void Nemesis::Kill(SimServer* server, absl::Duration down_max) {
  if (!server->process().alive()) return;
  const ChaosOptions& chaos = world_->options.chaos;
  ++world_->faults[Fault::kServerKilled];
  SimServer::DiskFate fate = SimServer::DiskFate::kKept;
  if (prng_.Chance(chaos.cut_power)) fate = SimServer::DiskFate::kCrashed;
  if (prng_.Chance(chaos.lose_disk)) fate = SimServer::DiskFate::kLost;
  const bool lost = fate == SimServer::DiskFate::kLost;
  if (lost) world_->DiskSuffered(server->process().name());
  ++world_->faults[lost ? Fault::kRestartWithoutDisk : Fault::kRestartWithDisk];
  static constexpr const char* kFates[] = {"", ", cutting its power", ", losing its disk"};
  Narrate(absl::StrCat("kills ", server->process().name(), kFates[static_cast<int>(fate)]));
  if (fate == SimServer::DiskFate::kCrashed) {
    server->CutPowerSoon();
  } else {
    server->Kill(fate);
  }
  const absl::Duration down = prng_.Between(absl::Milliseconds(110), down_max);
  world_->loop.After(down, [server] {
    if (!server->process().alive()) server->Start();
  });
}

void Nemesis::KillServer() {
  const auto draw = [this] {
    auto& servers = cluster_->servers();
    const auto last = static_cast<int64_t>(servers.size()) - 1;
    return servers[static_cast<size_t>(prng_.Between(0, last))].get();
  };
  Kill(draw(), world_->options.chaos.down_max);
  if (!prng_.Chance(0.3)) return;
  // Another one while the cluster recovers from the first.
  world_->loop.After(prng_.Between(absl::Milliseconds(100), absl::Seconds(2)), [this, draw] {
    if (healed_) return;
    ++world_->faults[Fault::kKilledWhileRecovering];
    Kill(draw(), world_->options.chaos.down_max);
  });
}

void Nemesis::KillAll() {
  ++world_->faults[Fault::kAllKilled];
  world_->all_killed = world_->loop.Now();
  Narrate("kills every process");
  const absl::Duration down_max = world_->options.chaos.down_max;
  KillScheduler();
  for (const auto& server : cluster_->servers()) Kill(server.get(), down_max);
  KillWorkers();
}

void Nemesis::KillWorkers() {
  for (const auto& worker : cluster_->workers()) {
    if (!worker->process().alive()) continue;
    worker->process().Kill();
    RestartLater(&worker->process(), [node = worker.get()] { node->Start(); });
  }
}

void Nemesis::KillWorker() {
  auto& workers = cluster_->workers();
  SimWorker& worker =
      *workers[static_cast<size_t>(prng_.Between(0, static_cast<int64_t>(workers.size()) - 1))];
  if (!worker.process().alive()) return;
  ++world_->faults[Fault::kWorkerKilled];
  Narrate(absl::StrCat("kills ", worker.process().name()));
  worker.process().Kill();
  RestartLater(&worker.process(), [&worker] { worker.Start(); });
}

void Nemesis::KillTask() {
  std::vector<std::pair<SimWorker*, Process*>> tasks;
  for (const auto& worker : cluster_->workers()) {
    for (Process* task : worker->TaskProcesses()) tasks.emplace_back(worker.get(), task);
  }
  if (tasks.empty()) return;
  const auto& [worker, task] =
      tasks[static_cast<size_t>(prng_.Between(0, static_cast<int64_t>(tasks.size()) - 1))];
  ++world_->faults[Fault::kTaskKilled];
  Narrate(absl::StrCat("kills ", task->name()));
  worker->KillTask(task);
}

void Nemesis::PauseScheduler() { Pause(&cluster_->scheduler().process(), Fault::kSchedulerPaused); }

void Nemesis::PauseServer() {
  auto& servers = cluster_->servers();
  const auto chosen =
      static_cast<size_t>(prng_.Between(0, static_cast<int64_t>(servers.size()) - 1));
  Pause(&servers[chosen]->process(), Fault::kServerPaused);
}

void Nemesis::PauseWorker() {
  auto& workers = cluster_->workers();
  const auto chosen =
      static_cast<size_t>(prng_.Between(0, static_cast<int64_t>(workers.size()) - 1));
  Pause(&workers[chosen]->process(), Fault::kWorkerPaused);
}

void Nemesis::PauseTask() {
  std::vector<Process*> tasks;
  for (const auto& worker : cluster_->workers()) {
    for (Process* task : worker->TaskProcesses()) tasks.push_back(task);
  }
  if (tasks.empty()) return;
  Pause(tasks[static_cast<size_t>(prng_.Between(0, static_cast<int64_t>(tasks.size()) - 1))],
        Fault::kTaskPaused);
}

}  // namespace capstan::sim
