// Gradient: the values that one message brings for one shard, as they came: in pieces, wherever the
// network put them. Whoever uses them reads a block at a time, so that they pass through the cache
// once, on their way into the sum or the update.
//
// Thread safety: thread-compatible. Borrows the pieces' memory.
#ifndef CAPSTAN_SERVER_TABLE_STORE_GRADIENT_H_
#define CAPSTAN_SERVER_TABLE_STORE_GRADIENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/types/span.h"

namespace capstan::server {

class Gradient {
 public:
  // Elements that a caller reads at a time: 16 KiB stay in the L1 cache.
  static constexpr int64_t kBlockElements = 4096;

  Gradient() = default;  // Empty.
  explicit Gradient(absl::Span<const float> values);
  // fp32, little-endian. REQUIRES: whole elements; the Cord outlives the gradient, unchanged.
  explicit Gradient(const absl::Cord& values);

  int64_t size() const { return size_; }  // Elements.

  // Elements [begin, begin + count): where they lie, or copied to `block` if they are torn there or
  // not aligned. Valid as long as both. REQUIRES: the range is inside; `block` has room for it.
  const float* Read(int64_t begin, int64_t count, float* block) const;

  void CopyTo(float* to) const;             // All of them.
  void AppendTo(std::string* bytes) const;  // Likewise, as they came.

 private:
  struct Piece {
    int64_t begin = 0;  // Byte of the whole.
    int64_t end = 0;
    const char* data = nullptr;
  };
  void AddPiece(const char* data, size_t bytes);

  std::vector<Piece> pieces_;  // In order, none empty.
  int64_t size_ = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_TABLE_STORE_GRADIENT_H_
