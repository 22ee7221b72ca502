// ByteStream: the interface of bytes that are read from front to back, such as a file's contents.
//
// Thread safety: implementations are thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_STREAMS_BYTE_STREAM_H_
#define CAPSTAN_COMMON_EXAMPLES_STREAMS_BYTE_STREAM_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace capstan {

// Bytes of a compressed file that are read at a time.
inline constexpr size_t kStreamChunkBytes = 256 * 1024;

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills the front of `room` and returns the number of bytes; 0 only at the end. REQUIRES: room is
  // not empty; no call after an error.
  // Errors: those of the source; kDataLoss  compressed data that are truncated or corrupt.
  virtual absl::StatusOr<size_t> Read(absl::Span<char> room) = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_STREAMS_BYTE_STREAM_H_
