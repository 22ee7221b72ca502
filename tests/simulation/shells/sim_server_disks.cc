// SimServer's disks, its power, and the ends of its process.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/shells/sim_server.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kDiskMin =
    absl::Microseconds(100);  // Shortest group of writes with a sync.
constexpr absl::Duration kCutMax = absl::Milliseconds(100);  // If it writes nothing.
constexpr absl::Duration kCutInWriteMax = absl::Seconds(2);  // Where sectors are kept in no order.
constexpr absl::Duration kPowerBack = absl::Seconds(1);
constexpr absl::Duration kSlowSyncMax = absl::Seconds(5);
constexpr absl::Duration kRowDiskBrokenMax = absl::Seconds(20);

}  // namespace

double SimServer::SlowSyncs() const {
  const bool healed = world_->loop.Now().SinceOrigin() >= world_->options.chaos_time;
  return healed ? 0 : world_->options.chaos.slow_sync;
}

server::TaskRunner::Execute SimServer::DiskExecutor(absl::Duration longest) {
  return [this, longest](std::function<void()> task) {
    absl::Duration takes = world_->prng.Between(kDiskMin, longest);
    if (slow_syncs_.Chance(SlowSyncs())) {
      ++world_->faults[Fault::kSlowSync];
      takes = slow_syncs_.Between(absl::Seconds(1), kSlowSyncMax);
    }
    process_.After(takes, [this, task = std::move(task)] {
      task();
      LookAtDisks();
    });
  };
}

void SimServer::LookAtDisks() {
  CountDiskFaults();
  world_->LookAtSharedDisk();
  if (disk_->cut()) LosePower();
}

void SimServer::FlipStoredBit() {
  if (disk_ != nullptr && !std::exchange(rotten_, true)) disk_->FlipRandomBit();
  CountDiskFaults();
}

void SimServer::SetDiskRates() {
  if (disk_ != nullptr) disk_->SetRates(world_->disk_rates);
}

void SimServer::CutPowerSoon() {
  // The cut comes in the middle of what it writes next.
  disk_->CutAt(disk_->steps() + world_->prng.Between(0, 5));
  const bool logs = world_->AnyJob([](const JobOptions& job) { return job.log; });
  const bool in_write = logs && world_->options.chaos.any_sectors > 0;
  const absl::Duration longest = in_write ? kCutInWriteMax : kCutMax;
  world_->loop.After(longest, [this, incarnation = process_.incarnation()] {
    if (process_.alive() && process_.incarnation() == incarnation) LosePower();
  });
}

void SimServer::LosePower() {
  Kill(DiskFate::kCrashed);
  world_->loop.After(kPowerBack, [this] {
    if (!process_.alive()) Start();
  });
}

void SimServer::BreakRowDiskLater() {
  if (row_disk_breaks_ == absl::InfiniteDuration()) return;
  const absl::Duration after =
      row_disk_faults_.Between(row_disk_breaks_ / 10, row_disk_breaks_ * 19 / 10);
  world_->loop.After(after, [this, incarnation = process_.incarnation()] {
    const bool healed = world_->loop.Now().SinceOrigin() >= world_->options.chaos_time;
    if (!healed && process_.alive() && process_.incarnation() == incarnation) BreakRowDisk();
  });
}

void SimServer::BreakRowDisk() {
  ++world_->faults[Fault::kRowDiskBroken];
  switch (row_disk_faults_.Between(0, 2)) {
    case 0:
      row_disks_->write_error = absl::ResourceExhaustedError("no space left (simulated)");
      break;
    case 1:
      row_disks_->read_error = absl::UnavailableError("input/output error (simulated)");
      break;
    default:
      row_disks_->read_error = absl::DataLossError("a row is not what was written (simulated)");
  }
  const absl::Duration broken =
      row_disk_faults_.Between(absl::Milliseconds(100), kRowDiskBrokenMax);
  world_->trace.Narrate(absl::StrCat("the disk of ", process_.name(), "'s rows breaks for ",
                                     absl::FormatDuration(broken)));
  world_->loop.After(broken, [this, incarnation = process_.incarnation()] {
    if (process_.alive() && process_.incarnation() == incarnation) MendRowDisk();
  });
}

void SimServer::MendRowDisk() {
  row_disks_->write_error = absl::OkStatus();
  row_disks_->read_error = absl::OkStatus();
  const auto is_well = [this](const auto& job) {
    if (job->options.sparse_memory == 0) return true;
    const auto held = Held(job->id());
    return held != nullptr && held->failure().ok();
  };
  if (std::all_of(world_->jobs.begin(), world_->jobs.end(), is_well)) return BreakRowDiskLater();
  world_->trace.Narrate(absl::StrCat(process_.name(), " is started anew with a disk for its rows"));
  Kill(DiskFate::kKept);
  world_->loop.After(kPowerBack, [this] {
    if (!process_.alive()) Start();
  });
}

void SimServer::Kill(DiskFate fate) {
  process_.Kill();
  switch (fate) {
    case DiskFate::kKept:
      disk_->KillProcess();
      break;
    case DiskFate::kCrashed: {
      const auto torn = static_cast<SimDisk::Unsynced>(world_->prng.Between(0, 4));
      const bool any = sectors_.Chance(world_->options.chaos.any_sectors);
      disk_->Crash(any ? SimDisk::Unsynced::kAnySectors : torn);
      break;
    }
    case DiskFate::kLost:
      ChangeDisk();
      break;
  }
  CountDiskFaults();
}

std::unique_ptr<SimDisk> SimServer::MakeDisk() {
  auto disk = std::make_unique<SimDisk>(
      MixKey(world_->options.seed,
             static_cast<uint64_t>(endpoint_) << 32 | static_cast<uint64_t>(disks_++)));
  disk->SetRates(world_->disk_rates);
  return disk;
}

void SimServer::KeepCopyOfDisk() {
  old_disk_ = MakeDisk();
  old_disk_->CopyFrom(*disk_);
}

// Takes a new disk, or the one before.
void SimServer::ChangeDisk() {
  CountDiskFaults();
  if (disk_ != nullptr) disk_->KillProcess();
  if (!old_disks_.Chance(world_->options.chaos.old_disk)) old_disk_.reset();
  std::swap(disk_, old_disk_);
  counted_ = {};
  if (disk_ == nullptr) return;
  ++world_->faults[Fault::kOldDiskBack];
  for (int i = 0; i < SimDisk::kFaultCount; ++i) {
    counted_[static_cast<size_t>(i)] = disk_->injected(static_cast<SimDisk::Fault>(i));
  }
  SetDiskRates();
}

void SimServer::CountDiskFaults() {
  if (disk_ == nullptr) return;
  static constexpr std::pair<SimDisk::Fault, Fault> kKinds[] = {
      {SimDisk::Fault::kDiskFull, Fault::kDiskFull},
      {SimDisk::Fault::kWriteError, Fault::kDiskWriteError},
      {SimDisk::Fault::kReadError, Fault::kDiskReadError},
      {SimDisk::Fault::kSyncError, Fault::kDiskSyncError},
      {SimDisk::Fault::kLyingSync, Fault::kLyingSync},
      {SimDisk::Fault::kTornWrite, Fault::kTornWrite},
      {SimDisk::Fault::kLostSector, Fault::kLostSector},
      {SimDisk::Fault::kBitFlipOnRead, Fault::kBitFlip},
      {SimDisk::Fault::kBitFlipAtRest, Fault::kBitFlip},
  };
  for (const auto& [disk_fault, fault] : kKinds) {
    int64_t& counted = counted_[static_cast<size_t>(disk_fault)];
    const int64_t now = disk_->injected(disk_fault);
    world_->faults[fault] += now - counted;
    if (now > counted) {
      // Losing what was not synced yet harms nobody.
      const bool unsynced = fault == Fault::kTornWrite || fault == Fault::kLostSector;
      if (!unsynced) world_->DiskSuffered(process_.name());
      world_->trace.Narrate(
          absl::StrCat(process_.name(), "'s disk: ", now - counted, " x ", FaultName(fault)));
    }
    counted = disk_->injected(disk_fault);
  }
}

}  // namespace capstan::sim
