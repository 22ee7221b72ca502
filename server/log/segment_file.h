// Segment files of a job's log: their names, and reading one as a whole.
//
// Thread safety: pure functions but for the disk.
#ifndef CAPSTAN_SERVER_LOG_SEGMENT_FILE_H_
#define CAPSTAN_SERVER_LOG_SEGMENT_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/disk.h"
#include "server/log/log_index.h"

namespace capstan::server {

// Limit of a segment file, which is read as a whole. A segment exceeds its own limit
// (JobLog::Options) by one batch at most.
inline constexpr int64_t kSegmentReadBytesMax = int64_t{4} << 30;

std::string SegmentPath(const std::string& folder, uint64_t number);
// Numbers of the segments in a folder, ascending. Errors: the disk's.
absl::StatusOr<std::vector<uint64_t>> ListSegments(Disk& disk, const std::string& folder);

struct SegmentContents {
  SegmentHead head;
  std::vector<LogFrame> frames;   // Frames of shards.
  std::vector<uint64_t> removed;  // Segments that it lists as removed.
  int64_t whole_bytes = 0;
};

// Reads a segment up to where it is torn off. `bytes`: the size of its whole frames, if that is
// known; then nothing may be torn off before it. Returns nothing if its head itself is torn off.
// Errors: kDataLoss  it is missing, damaged, or shorter than it should be. The disk's.
absl::StatusOr<std::optional<SegmentContents>> ReadSegment(Disk& disk, const std::string& folder,
                                                           uint64_t number,
                                                           std::optional<int64_t> bytes);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_LOG_SEGMENT_FILE_H_
