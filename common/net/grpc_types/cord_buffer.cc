#include "common/net/grpc_types/cord_buffer.h"

#include <grpcpp/support/slice.h>

#include <vector>

#include "absl/strings/string_view.h"

namespace capstan {
namespace {

// Up to this size, a copy costs less than keeping a piece alive by a reference.
constexpr size_t kCopyBytesMax = 512;

}  // namespace

grpc::ByteBuffer ToByteBuffer(const absl::Cord& cord) {
  std::vector<grpc::Slice> slices;
  for (const absl::string_view chunk : cord.Chunks()) {
    if (chunk.size() <= kCopyBytesMax) {
      slices.emplace_back(chunk.data(), chunk.size());
      continue;
    }
    // Every slice keeps the whole Cord alive: copying a Cord only adds a reference.
    slices.emplace_back(
        const_cast<char*>(chunk.data()), chunk.size(),
        [](void* owner) { delete static_cast<absl::Cord*>(owner); }, new absl::Cord(cord));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Cord ToCord(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  absl::Cord cord;
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) return cord;
  for (const grpc::Slice& slice : slices) {
    const absl::string_view bytes(reinterpret_cast<const char*>(slice.begin()), slice.size());
    if (bytes.size() <= kCopyBytesMax) {
      cord.Append(bytes);
    } else {
      // Copying a Slice adds a reference. Small slices hold their bytes themselves and are copied
      // above.
      cord.Append(absl::MakeCordFromExternal(bytes, [slice] {}));
    }
  }
  return cord;
}

}  // namespace capstan
