// WireValues: the values that one message brings for one shard, as they came: in pieces, wherever
// the network put them, in whatever format. Whoever uses them reads a block at a time, so that they
// pass through the cache once, on their way into a sum, an update or an array.
//
// Thread safety: thread-compatible. Borrows the pieces' memory.
#ifndef CAPSTAN_COMMON_WIRE_WIRE_VALUES_H_
#define CAPSTAN_COMMON_WIRE_WIRE_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/types/span.h"
#include "common/types/unaligned_float.h"
#include "common/wire/number_format.h"

namespace capstan {

class WireValues {
 public:
  // Elements that a caller reads at a time: 16 KiB of fp32 stay in the L1 cache.
  static constexpr int64_t kBlockElements = 4096;

  WireValues() = default;  // Empty.
  explicit WireValues(absl::Span<const float> values);
  // Little-endian, behind the first `skip` bytes. REQUIRES: whole elements; the Cord outlives the
  // values, unchanged.
  explicit WireValues(const absl::Cord& values, NumberFormat format = NumberFormat::kFp32,
                      size_t skip = 0);

  int64_t size() const { return size_; }  // Elements.

  // Elements [begin, begin + count): where they lie, or in `block` if they lie in several pieces or
  // are not fp32. Valid as long as both. REQUIRES: the range is inside; `block` has room; count is
  // at most kBlockElements.
  const UnalignedFloat* Read(int64_t begin, int64_t count, float* block) const;

  void CopyTo(float* to) const;  // Copies all of them.
  // Copies all of them in the format in which they came, but for those that were received in `to`.
  void CopyBytesTo(char* to) const;
  // Copies rows of `dim` to rows `places` of `to`. REQUIRES: as many; dim <= kBlockElements.
  void CopyRowsTo(absl::Span<const uint32_t> places, int64_t dim, float* to) const;
  void AppendTo(std::string* bytes) const;  // Appends all of them as fp32.

 private:
  struct Piece {
    int64_t begin = 0;  // Byte of the whole.
    int64_t end = 0;
    const char* data = nullptr;
  };
  void AddPiece(const char* data, size_t bytes);
  // The bytes [begin, end): where they lie, or copied to `room`.
  const char* ReadBytes(int64_t begin, int64_t end, char* room) const;

  NumberFormat format_ = NumberFormat::kFp32;
  std::vector<Piece> pieces_;  // Ordered by place; none is empty.
  int64_t size_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_WIRE_WIRE_VALUES_H_
