// The scheduler's store: writes, failures, copies.
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_part.h"
#include "scheduler/admission/admitted_codec.h"
#include "tests/simulation/shells/sim_scheduler.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kStartedAgain =
    absl::Seconds(1);  // A watcher starts the process again after this time.
constexpr double kWrittenAllTheSame =
    0.3;  // Share of failed transactions that are written all the same.

}  // namespace

// Does what the daemon does: it says nothing of what could not be written, and the process ends.
bool SimScheduler::WriteStore(const std::vector<scheduler::StoreWrite>& writes,
                              const std::vector<Step>& steps) {
  if (!store_is_broken_ || writes.empty()) return store_->Write(writes).ok();
  ++world_->faults[Fault::kStoreFailed];
  world_->trace.Narrate("scheduler: its store cannot be written, it ends");
  if (store_prng_.Chance(kWrittenAllTheSame)) {
    ++world_->faults[Fault::kStoreFailedAndWritten];
    store_->Write(writes).IgnoreError();
    // It is so, though nobody hears of it.
    for (const Step& step : steps) {
      for (const scheduler::Event& event : step.actions.events) TellCheckers(event);
    }
    for (const auto& job : world_->jobs) {
      const auto routing = core_->jobs().RoutingOf(job->id());
      if (!routing.ok()) continue;
      job->Tell([&](Checker& checker) { checker.RoutingWritten(**routing); });
    }
  }
  process_.Kill();
  world_->TroubleFor(kStartedAgain);
  world_->loop.After(kStartedAgain, [this] {
    if (!process_.alive()) Start();
  });
  return false;
}

void SimScheduler::CopyStore() {
  scheduler::StoreRows rows = store_->Load().value();
  const auto jobs = scheduler::DecodeAdmitted(rows);
  if (!jobs.ok() || jobs->size() < world_->jobs.size()) return;
  copy_ = std::move(rows);
  world_->Tell([](Checker& checker) { checker.StoreCopied(); });
}

bool SimScheduler::PutBackStore() {
  if (copy_.empty()) return false;
  store_ = std::make_unique<scheduler::MemoryStore>();
  std::vector<scheduler::StoreWrite> rows;
  for (const auto& [key, value] : copy_) rows.push_back({key, value});
  store_->Write(rows).IgnoreError();
  for (const auto& job : world_->jobs) job->routing = {};
  world_->Tell([](Checker& checker) { checker.StorePutBack(); });
  return true;
}

std::vector<std::string> SimScheduler::CompleteCheckpoints(const JobId& job) const {
  std::vector<std::string> folders;
  if (core_ == nullptr) return folders;
  const scheduler::CheckpointRemoval removal = core_->jobs().CheckpointsToRemove(job);
  for (const CheckpointId id : removal.staying) {
    folders.push_back(CheckpointPath(removal.job_folder, id));
  }
  return folders;
}

}  // namespace capstan::sim
