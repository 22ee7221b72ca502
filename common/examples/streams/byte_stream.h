// ByteStream: bytes from front to back, wherever they come from.
//
// Thread safety: implementations are thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_STREAMS_BYTE_STREAM_H_
#define CAPSTAN_COMMON_EXAMPLES_STREAMS_BYTE_STREAM_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace capstan {

// How much of a compressed file is read at a time.
inline constexpr size_t kStreamChunkBytes = 256 * 1024;

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills the front of `room` and says how much of it; 0 only at the end. REQUIRES: room is not
  // empty; no call after an error.
  // Errors: those of the source; kDataLoss  compressed data that are truncated or corrupt.
  virtual absl::StatusOr<size_t> Read(absl::Span<char> room) = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_STREAMS_BYTE_STREAM_H_
