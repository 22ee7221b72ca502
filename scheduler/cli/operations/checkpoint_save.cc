#include "scheduler/cli/operations/checkpoint_save.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/time/clock.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/interrupts.h"

namespace capstan::cli {
namespace {

constexpr absl::Duration kWaitMax = absl::Milliseconds(500);  // Longest delay of a signal.
constexpr absl::Duration kNoteInterval = absl::Minutes(1);

}  // namespace

absl::StatusOr<v1::SaveCheckpointResponse> SaveCheckpoint(SchedulerClient& scheduler,
                                                          const std::string& job_id,
                                                          Patience::Options options) {
  return AwaitCheckpoint(scheduler, job_id, /*asked_id=*/0, std::move(options));
}

absl::StatusOr<v1::SaveCheckpointResponse> AwaitCheckpoint(SchedulerClient& scheduler,
                                                           const std::string& job_id,
                                                           uint64_t asked_id,
                                                           Patience::Options options) {
  Patience patience(scheduler.address(), std::move(options));
  const SteadyClock clock;
  Instant next_note = clock.Now() + kNoteInterval;
  // The first call does not wait, so the client soon has the id with which it can ask again if the
  // scheduler dies.
  while (Interrupts::Signal() == 0) {
    const absl::Duration wait = asked_id == 0 ? absl::ZeroDuration() : kWaitMax;
    const auto saved = scheduler.SaveCheckpoint(job_id, asked_id, wait);
    if (patience.AsksAgain(saved.status())) continue;
    if (!saved.ok() || saved->checkpoint_id() != 0) return saved;
    asked_id = saved->asked_id();
    if (clock.Now() < next_note) continue;
    Note(absl::StrCat("the checkpoint of ", job_id, " goes on"));
    next_note = clock.Now() + kNoteInterval;
  }
  return absl::CancelledError(absl::StrCat("the checkpoint of ", job_id, " goes on"));
}

}  // namespace capstan::cli
