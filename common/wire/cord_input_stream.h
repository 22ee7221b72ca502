// CordInputStream: protobuf's reader over the pieces of a Cord.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_WIRE_CORD_INPUT_STREAM_H_
#define CAPSTAN_COMMON_WIRE_CORD_INPUT_STREAM_H_

#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>

#include "absl/strings/cord.h"

namespace capstan {

class CordInputStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit CordInputStream(const absl::Cord& cord)  // It outlives the stream, unchanged.
      : chunk_(cord.chunk_begin()), end_(cord.chunk_end()) {}

  bool Next(const void** data, int* size) override;
  void BackUp(int count) override;
  bool Skip(int count) override;
  int64_t ByteCount() const override { return count_; }

 private:
  absl::Cord::ChunkIterator chunk_;
  const absl::Cord::ChunkIterator end_;
  size_t used_ = 0;  // Used bytes of *chunk_.
  int64_t count_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_WIRE_CORD_INPUT_STREAM_H_
