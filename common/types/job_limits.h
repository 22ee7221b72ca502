// The limits of what a job may ask for, as proto/job.proto states them. common/job checks a job
// file by them; whoever reads a job's plan from a disk, or a number from a peer, checks it again.
//
// Thread safety: constants.
#ifndef CAPSTAN_COMMON_TYPES_JOB_LIMITS_H_
#define CAPSTAN_COMMON_TYPES_JOB_LIMITS_H_

#include <cstdint>

namespace capstan {

inline constexpr int32_t kWorkersMax = 4096;  // Ranks are below it.
inline constexpr int32_t kSlotsMax = 1024;    // Slots of a BSP iteration.
inline constexpr int32_t kReplicasMax = 3;
inline constexpr int32_t kGpusPerTaskMax = 16;
inline constexpr int64_t kSamplesMax = int64_t{1} << 62;        // Samples of all epochs together.
inline constexpr int64_t kTableElementsMax = int64_t{1} << 40;  // Elements of a dense table.
inline constexpr int64_t kSparseBucketsMax = 4096;              // Buckets of a sparse table.
// A row's time to live in a job file, unless that is 0; servers accept shorter ones, too.
inline constexpr int64_t kTtlSecondsMin = 60;
inline constexpr int64_t kTtlSecondsMax = 315'360'000;  // Ten years.
inline constexpr int kTablesReportedMax = 10'000;       // Tables of all updates in a task's report.

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_JOB_LIMITS_H_
