// Reached: branches of recovery that the simulation must reach, counted over all seeds. A counter
// that stays zero means that something is not being tested.
//
// Thread safety: values.
#ifndef CAPSTAN_TESTS_SIMULATION_WORLD_REACHED_H_
#define CAPSTAN_TESTS_SIMULATION_WORLD_REACHED_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace capstan::sim {

enum class Reached : uint8_t {
  kPushRepeated,
  kPushSentLate,
  kPushDuplicateAnswered,
  kPushLate,
  kPullNotReady,
  kPullPast,
  kReaderRead,
  kCallerFenced,
  kStaleRoutingRefused,
  kKeyListUnknown,
  kDamagedFrame,
  kDamagedReplicaMessage,
  kKeptRowsUsed,
  kKeptRowsDropped,
  kLongWork,
  kRunFinished,
  kRunRested,
  kRunTakenAway,
  kTaskReplaced,
  kTaskCrashCounted,
  kWorkerDaemonDied,
  kServerDied,
  kServerDiedWhileMoving,
  kNodeNewIncarnation,
  kSamplesLeasedAgain,
  kReplicaPromoted,
  kReplicaFilling,
  kPrimarySwapped,
  kJobRecovering,
  kCopiesCompared,
  kRowRefused,
  kRowEvicted,
  kRowReadFromDisk,
  kPushedWhileFetching,
  kCheckpointComplete,
  kCheckpointAbandoned,
  kCheckpointSaved,
  kPartCompared,
  kSnapshotOpened,
  kSnapshotRead,
  kSnapshotEnded,
  kWentBackToCheckpoint,
  kCheckpointIncremental,
  kWentBackToIncremental,
  kBegunAnew,
  kModelLeftToTask,
  kModelMovedByTask,
  kServerFailed,
  kLogFailed,
  kCheckpointRefused,
  kCheckpointVerified,
  kSchedulerRestored,
  kSchedulerKilledInCommit,
  kJobFailedServerLost,
  kJobFailedOlderStore,
  kJobOutlivedOlderStore,
  kJobStopped,
  kJobSucceeded,
  kJobsOnOneServer,
  kJobWaited,
  kJobOutlivedStop,
  kCount,
};

inline constexpr size_t kReachedCount = static_cast<size_t>(Reached::kCount);

absl::string_view ReachedName(Reached reached);

struct ReachedCounts {
  std::array<int64_t, kReachedCount> times{};
  int64_t& operator[](Reached reached) { return times[static_cast<size_t>(reached)]; }
  int64_t operator[](Reached reached) const { return times[static_cast<size_t>(reached)]; }
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_WORLD_REACHED_H_
