// Faults of the scheduler's store and of the disk where checkpoints lie; and faults that are aimed
// at the moments of a job and at its end.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "tests/simulation/nemesis/nemesis.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kStoreBrokenMax = absl::Seconds(4);
constexpr absl::Duration kCutMax = absl::Seconds(1);  // If nothing is written.
constexpr int64_t kCutStepsMax = 40;                  // Steps of the disk; a part takes about five.

}  // namespace

void Nemesis::StartStores() {
  const ChaosOptions& chaos = world_->options.chaos;
  const double rate = chaos.checkpoint_fault;
  world_->checkpoint_disk_rates = {.disk_full = rate,
                                   .write_error = rate,
                                   .read_error = rate / 10,
                                   .sync_error = rate,
                                   .bit_flip_on_read = rate / 10};
  world_->shared_disk.SetRates(world_->checkpoint_disk_rates);
  Every(chaos.break_store, &Nemesis::BreakStore);
  if (chaos.put_back_store != absl::InfiniteDuration()) {
    Once(chaos.put_back_store - chaos.copy_age, &Nemesis::CopyStore);
    Once(chaos.put_back_store, &Nemesis::PutBackStore);
  }
  Every(chaos.flip_checkpoint_bit, &Nemesis::FlipCheckpointBit);
  Every(chaos.cut_checkpoint_power, &Nemesis::CutCheckpointPowerSoon);
  world_->on_checkpoint_cut = [this] { CrashCheckpointDisk(); };
  if (chaos.kill_while_moving) world_->on_model_moves = [this] { KillWhileMoving(); };
  Every(chaos.die_behind_fence, &Nemesis::DieBehindFence);
}

void Nemesis::HealStores() {
  cluster_->scheduler().MendStore();
  world_->checkpoint_disk_rates = {};
  world_->shared_disk.SetRates({});
  for (const SimDisk::Fault fault : {SimDisk::Fault::kDiskFull, SimDisk::Fault::kWriteError,
                                     SimDisk::Fault::kReadError, SimDisk::Fault::kSyncError}) {
    world_->faults[Fault::kCheckpointDiskFault] += world_->shared_disk.injected(fault);
  }
}

// ---------------------------------------------------------------- the scheduler's store

void Nemesis::BreakStore() {
  const absl::Duration time = stores_prng_.Between(absl::Milliseconds(10), kStoreBrokenMax);
  Narrate(absl::StrCat("the scheduler's store cannot be written for ", absl::FormatDuration(time)));
  cluster_->scheduler().BreakStore();
  world_->TroubleFor(time);
  world_->loop.After(time, [this] { cluster_->scheduler().MendStore(); });
}

void Nemesis::PutBackStore() {
  SimScheduler& scheduler = cluster_->scheduler();
  scheduler.process().Kill();
  if (scheduler.PutBackStore()) {
    ++world_->faults[Fault::kStorePutBack];
    Narrate(absl::StrCat("kills the scheduler and puts its store back by ",
                         absl::FormatDuration(world_->options.chaos.copy_age)));
  }
  world_->TroubleFor(world_->options.chaos.down_max);
  RestartLater(&scheduler.process(), [&scheduler] { scheduler.Start(); });
}

// ---------------------------------------------------------------- the disk of checkpoints

// Flips a bit of a job's newest complete checkpoint, if another one of that job is whole.
void Nemesis::FlipCheckpointBit() {
  SimDisk& disk = world_->shared_disk;
  const auto last_job = static_cast<int64_t>(world_->jobs.size()) - 1;
  const JobWorld& job = *world_->jobs[static_cast<size_t>(stores_prng_.Between(0, last_job))];
  const std::vector<std::string> complete = cluster_->scheduler().CompleteCheckpoints(job.id());
  if (complete.size() < 2) return;
  std::vector<std::string> files;
  for (const std::string& file : disk.files()) {
    if (absl::StartsWith(file, absl::StrCat(complete.back(), "/"))) files.push_back(file);
  }
  if (files.empty()) return;
  const auto last = static_cast<int64_t>(files.size()) - 1;
  const std::string& file = files[static_cast<size_t>(stores_prng_.Between(0, last))];
  const auto bytes = disk.Read(file, int64_t{1} << 30);
  if (!bytes.ok() || bytes->empty()) return;
  const int64_t bit = stores_prng_.Between(0, 8 * static_cast<int64_t>(bytes->size()) - 1);
  disk.FlipBit(file, bit);
  bool whole = false;
  for (const std::string& other : complete) {
    whole = whole || (other != complete.back() && VerifyCheckpoint(disk, other).ok());
  }
  if (!whole) return disk.FlipBit(file, bit);
  ++world_->faults[Fault::kCheckpointBitFlip];
  Narrate(absl::StrCat("flips bit ", bit, " of ", file));
}

// Cuts the power in the middle of what is written next.
void Nemesis::CutCheckpointPowerSoon() {
  SimDisk& disk = world_->shared_disk;
  disk.CutAt(disk.steps() + stores_prng_.Between(0, kCutStepsMax));
  const int64_t cuts = world_->faults[Fault::kCheckpointPowerCut];
  world_->loop.After(kCutMax, [this, cuts] {
    if (world_->faults[Fault::kCheckpointPowerCut] == cuts) CrashCheckpointDisk();
  });
}

// It is back at once. What was complete is still whole.
void Nemesis::CrashCheckpointDisk() {
  ++world_->faults[Fault::kCheckpointPowerCut];
  Narrate("cuts the power of the checkpoint disk");
  world_->shared_disk.Crash(static_cast<SimDisk::Unsynced>(stores_prng_.Between(0, 4)));
  if (world_->faults[Fault::kStorePutBack] > 0) return;  // The scheduler knows others.
  for (const auto& job : world_->jobs) {
    for (const std::string& folder : cluster_->scheduler().CompleteCheckpoints(job->id())) {
      const absl::Status verified = VerifyCheckpoint(world_->shared_disk, folder).status();
      ++world_->reached[Reached::kCheckpointVerified];
      if (verified.ok() || !world_->failure.empty()) continue;
      world_->failure =
          absl::StrCat("checkpoints: ", folder,
                       " was complete, and is not after a power cut: ", verified.ToString());
    }
  }
}

// ---------------------------------------------------------------- aimed faults

// The scheduler hears each worker once, and no answer comes: they go on beyond what it knows of
// them, and beyond the moment, and die.
void Nemesis::OverrunUnheard() {
  Narrate("lets no worker hear the scheduler, which hears them");
  for (int host = 1 + world_->options.servers; host < cluster_->hosts(); ++host) {
    CutOneWay(0, host, absl::Milliseconds(2800));
  }
  Once(stores_prng_.Between(absl::Milliseconds(100), absl::Milliseconds(2700)),
       &Nemesis::KillWorkers);
}

void Nemesis::KillWhileMoving() {
  if (healed_) return;
  ++world_->faults[Fault::kKilledWhileMoving];
  Narrate("kills all servers while the model is moved");
  for (const auto& server : cluster_->servers()) Kill(server.get(), world_->options.chaos.down_max);
}

void Nemesis::CutOneWay(int from, int to, absl::Duration time) {
  world_->network.Cut(from, to);
  world_->TroubleFor(time);
  UndoAfter(time, [this, from, to] { world_->network.Mend(from, to); });
}

// The task's push reaches the server before the scheduler hears of its death.
void Nemesis::DieBehindFence() {
  auto& workers = cluster_->workers();
  const auto chosen =
      static_cast<size_t>(stores_prng_.Between(0, static_cast<int64_t>(workers.size()) - 1));
  const int server = static_cast<int>(stores_prng_.Between(1, world_->options.servers));
  const int worker = 1 + world_->options.servers + static_cast<int>(chosen);
  const absl::Duration late = stores_prng_.Between(absl::Milliseconds(100), absl::Seconds(1));
  world_->network.Clog(worker, server);
  UndoAfter(2 * late, [this, worker, server] { world_->network.Unclog(worker, server); });
  world_->TroubleFor(2 * late);
  world_->loop.After(late, [this, chosen, server, late] {
    const std::vector<Process*> tasks = cluster_->workers()[chosen]->TaskProcesses();
    if (healed_ || tasks.empty()) return;
    ++world_->faults[Fault::kDiedBehindFence];
    Narrate(absl::StrCat("kills ", tasks.front()->name(), " behind host ", server, "'s fence"));
    CutOneWay(0, server, late + absl::Milliseconds(500));
    cluster_->workers()[chosen]->KillTask(tasks.front());
    cluster_->scheduler().SaveCheckpoint(world_->first_job().id());
  });
}

}  // namespace capstan::sim
