// PlantedBug: bugs that the simulator plants to prove that it would find them (mutation testing).
//
//   if (Planted(PlantedBug::kSkipDuplicateFilter)) return PushOutcome::kRecorded;
//
// Only a program that defines capstan::PlantedBugIs can switch one on: the simulator, and
// benchmarks that measure what a check costs (tests/benchmark). In every other program the weak
// symbol below is null and Planted is false, whatever happens. Planted costs a comparison with a
// constant; keep it out of loops over elements all the same.
// Thread safety: as PlantedBugIs; false is always safe.
#ifndef CAPSTAN_COMMON_PLANTED_PLANTED_BUG_H_
#define CAPSTAN_COMMON_PLANTED_PLANTED_BUG_H_

#include <cstdint>

namespace capstan {

// Named by what goes wrong; tests/simulation/mutants.cc says what each one is.
enum class PlantedBug : uint8_t {
  kNone,
  // The worker.
  kSkipOneIterationTooMany,
  kRenumberRepeatedPush,
  kReadBeforeOwnWrites,
  kGiveUpOnTransportError,
  kReportBeforeAcknowledged,
  kForgetLeaseProgress,
  kBeginWhilePaused,
  kKeepStaleRow,
  kKeepRowTooLong,
  kKeepRowsOfOldMembers,
  // The scheduler.
  kLoseLeaseOfTheDead,
  kReturnWholeLease,
  kLosePartlyEvaluated,
  kTakeReportOfTheDead,
  kKeepDeadMember,
  kGrantBeforeServersKnow,
  kLoseLeasesOnRestart,
  kForgetToStoreJob,
  kReuseIncarnations,
  kTakeBusyForHung,
  kExportUnstaged,
  kMissServersWhileMoving,
  kExpireWhileIsolated,
  kTrustEveryLink,
  kBelieveOlderStore,
  kLetGoUnheard,
  kTakeMomentUnfenced,
  kReplaceHeard,
  // The server.
  kSkipDuplicateFilter,
  kAcceptOldIncarnation,
  kForgetFences,
  kStalenessOffByOne,
  kReleaseBarrierEarly,
  kCountLateSlot,
  kReadCurrentForPrevious,
  kIgnoreMembership,
  kForgetChangedRow,
  kForgetPinnedRow,
  kReadPresentForPinned,
  kKeepAnyVersion,
  kTakeInOldPayload,
  kFailJobForBadDisk,
  // Replication.
  kAcknowledgeBeforeReplica,
  kPromoteStaleReplica,
  kAcceptOldTerm,
  kInstallWithoutMarks,
  kInstallWithoutOptimizerState,
  kInstallWithoutRowLifetime,
  kIgnoreInstallChecksum,
  kIgnoreRecordChecksum,
  kIgnoreFrameChecksum,
  kReadWithoutLease,
  kReadWhileHandingOver,
  // Logs.
  kDropFsync,
  kAcknowledgeBeforeLogged,
  kAcknowledgeUnheardLog,
  kReleaseGroupEarly,
  kRemoveLiveSegment,
  kIgnoreChecksum,
  kTakeTearForDamage,
  kReadOlderDisk,
  kForgetBases,
  kPublishBeforeDurable,
  kCount,
};

[[gnu::weak]] bool PlantedBugIs(PlantedBug bug);

inline bool Planted(PlantedBug bug) { return PlantedBugIs != nullptr && PlantedBugIs(bug); }

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PLANTED_PLANTED_BUG_H_
