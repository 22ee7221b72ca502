#include "server/table_store/gradient.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/string_view.h"

namespace capstan::server {
namespace {

constexpr int64_t kBytes = sizeof(float);

}  // namespace

Gradient::Gradient(absl::Span<const float> values) {
  AddPiece(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

Gradient::Gradient(const absl::Cord& values) {
  for (const absl::string_view chunk : values.Chunks()) AddPiece(chunk.data(), chunk.size());
}

void Gradient::AddPiece(const char* data, size_t bytes) {
  if (bytes == 0) return;
  const int64_t begin = pieces_.empty() ? 0 : pieces_.back().end;
  pieces_.push_back({begin, begin + static_cast<int64_t>(bytes), data});
  size_ = pieces_.back().end / kBytes;
}

const float* Gradient::Read(int64_t begin, int64_t count, float* block) const {
  if (count == 0) return block;
  const int64_t first = begin * kBytes;
  const int64_t last = first + count * kBytes;
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), first,
                                [](int64_t byte, const Piece& each) { return byte < each.end; });
  const char* from = piece->data + (first - piece->begin);
  if (last <= piece->end && reinterpret_cast<uintptr_t>(from) % alignof(float) == 0) {
    return reinterpret_cast<const float*>(from);
  }
  char* to = reinterpret_cast<char*>(block);
  for (int64_t at = first; at < last; ++piece) {
    const int64_t bytes = std::min(piece->end, last) - at;
    std::memcpy(to, piece->data + (at - piece->begin), static_cast<size_t>(bytes));
    to += bytes;
    at += bytes;
  }
  return block;
}

void Gradient::CopyTo(float* to) const {
  for (const Piece& piece : pieces_) {
    std::memcpy(reinterpret_cast<char*>(to) + piece.begin, piece.data,
                static_cast<size_t>(piece.end - piece.begin));
  }
}

void Gradient::AppendTo(std::string* bytes) const {
  bytes->reserve(bytes->size() + static_cast<size_t>(size_ * kBytes));
  for (const Piece& piece : pieces_) {
    bytes->append(piece.data, static_cast<size_t>(piece.end - piece.begin));
  }
}

}  // namespace capstan::server
