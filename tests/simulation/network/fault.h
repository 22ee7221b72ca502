// Fault: what can be done to a simulated world, and how often it was done.
//
// Thread safety: values.
#ifndef CAPSTAN_TESTS_SIMULATION_NETWORK_FAULT_H_
#define CAPSTAN_TESTS_SIMULATION_NETWORK_FAULT_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace capstan::sim {

enum class Fault : uint8_t {
  kMessageLost,
  kMessageDelayed,
  kMessageDoubled,
  kMessageOvertaken,
  kMessageCorrupted,
  kConnectionReset,
  kBitFlippedOnTheWay,
  kTransportStatus,
  kPartitionOneWay,
  kPartitionTwoWay,
  kClogThenBurst,
  kSchedulerKilled,
  kServerKilled,
  kWorkerKilled,
  kTaskKilled,
  kSchedulerPaused,
  kServerPaused,
  kWorkerPaused,
  kTaskPaused,
  kRestartWithDisk,
  kRestartWithoutDisk,
  kKilledWhileRecovering,
  kPrimaryThenNewPrimaryKilled,
  kClockJump,
  kClockDrift,
  kDiskFull,
  kDiskReadError,
  kDiskWriteError,
  kDiskSyncError,
  kTornWrite,
  kLostSector,
  kLyingSync,
  kBitFlip,
  kRowDiskBroken,
  kAllKilled,
  kSchedulerIsolated,
  kReaderStranded,
  kMomentOverrun,
  kMomentOverrunByOne,
  kFormerPrimaryStranded,
  kSuccessorUnheard,
  kJoinedBehind,
  kLinkKilled,
  kClockFrozen,
  kSlowSync,
  kOldDiskBack,
  kStartedTwice,
  kTookName,
  kNodeDrained,
  kDrainedNodeGone,
  kWorkerLeft,
  kServerLeft,
  kServerLeftUnsafe,
  kCheckpointAskedFor,
  kJobStopped,
  kStoreFailed,
  kStoreFailedAndWritten,
  kStorePutBack,
  kCheckpointDiskFault,
  kCheckpointBitFlip,
  kCheckpointPowerCut,
  kKilledWhileMoving,
  kDiedBehindFence,
  kCount,
};

inline constexpr size_t kFaults = static_cast<size_t>(Fault::kCount);

absl::string_view FaultName(Fault fault);

struct FaultCounts {
  std::array<int64_t, kFaults> injected{};
  int64_t& operator[](Fault fault) { return injected[static_cast<size_t>(fault)]; }
  int64_t operator[](Fault fault) const { return injected[static_cast<size_t>(fault)]; }
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_NETWORK_FAULT_H_
