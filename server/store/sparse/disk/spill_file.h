// SpillFile: a file of segments of one size, which lasts at most as long as this process.
//
// The file has no name: however the process ends, the file system frees its space. Bytes go through
// the kernel's cache, which is not this process's memory: what it holds is read for the price of a
// call, what it does not hold is requested all at once.
// Thread safety: thread-safe; a segment belongs to the caller that has taken it.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_DISK_SPILL_FILE_H_
#define CAPSTAN_SERVER_STORE_SPARSE_DISK_SPILL_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/storage/files/descriptor.h"

namespace capstan::server {

class SpillFile {
 public:
  struct Segment {
    uint32_t number = 0;
    uint32_t use = 0;  // A different number each time that a segment is taken.
  };
  // Bytes that are read together. `bytes`: at most a segment's.
  struct Piece {
    uint32_t segment = 0;
    size_t at = 0;
    size_t bytes = 0;
  };
  // Is called once for each piece, in any order; the bytes are valid until it returns. An error
  // ends the reading.
  using Take = std::function<absl::Status(size_t piece, absl::string_view bytes)>;

  const std::string& folder() const { return folder_; }

  // Errors, here and below: kResourceExhausted  no space; kUnavailable  any other failure of the
  // disk. They name the folder.
  static absl::StatusOr<std::unique_ptr<SpillFile>> Create(const std::string& folder,
                                                           size_t segment_bytes);

  Segment TakeSegment();  // Its bytes are unspecified.
  void Return(uint32_t segment);
  // Returns the segments. Where the file system can, their room on the disk is given back until
  // they are taken again.
  void Discard(absl::Span<const uint32_t> segments);

  absl::Status Write(uint32_t segment, size_t at, absl::string_view bytes);
  // Errors: also kDataLoss  the bytes were never written.
  absl::Status Read(absl::Span<const Piece> pieces, const Take& take) const;
  // Reads in two steps. This one reads what the kernel has in its cache, and requests the rest
  // without waiting. It returns the indices in `pieces` of the rest, for ReadMissing, the second
  // step.
  absl::StatusOr<std::vector<size_t>> ReadCached(absl::Span<const Piece> pieces,
                                                 const Take& take) const;
  absl::Status ReadMissing(absl::Span<const Piece> pieces, absl::Span<const size_t> missing,
                           const Take& take) const;

 private:
  SpillFile(std::string folder, size_t segment_bytes, int fd)
      : folder_(std::move(folder)), segment_bytes_(segment_bytes), fd_(fd) {}

  off_t OffsetOf(uint32_t segment, size_t at) const {
    return static_cast<off_t>(uint64_t{segment} * segment_bytes_ + at);
  }
  // Reads the piece if the kernel has it in its cache. Returns false if not: the kernel then begins
  // to read it from the disk.
  bool ReadIfCached(const Piece& piece, char* to) const;
  absl::Status ReadAll(const Piece& piece, char* to) const;

  // Constant after construction.
  const std::string folder_;
  const size_t segment_bytes_;
  const Descriptor fd_;

  absl::Mutex mutex_;
  std::vector<uint32_t> free_ ABSL_GUARDED_BY(mutex_);
  uint32_t end_ ABSL_GUARDED_BY(mutex_) = 0;  // Segments behind it were never taken.
  uint32_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_DISK_SPILL_FILE_H_
