#include "common/wire/wire_values.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/string_view.h"

namespace capstan {

WireValues::WireValues(absl::Span<const float> values) {
  AddPiece(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

WireValues::WireValues(const absl::Cord& values, NumberFormat format, size_t skip)
    : format_(format) {
  for (absl::string_view chunk : values.Chunks()) {
    const size_t skipped = std::min(skip, chunk.size());
    skip -= skipped;
    chunk.remove_prefix(skipped);
    AddPiece(chunk.data(), chunk.size());
  }
}

void WireValues::AddPiece(const char* data, size_t bytes) {
  if (bytes == 0) return;
  const int64_t begin = pieces_.empty() ? 0 : pieces_.back().end;
  pieces_.push_back({begin, begin + static_cast<int64_t>(bytes), data});
  size_ = pieces_.back().end / BytesOf(format_);
}

const char* WireValues::ReadBytes(int64_t begin, int64_t end, char* room) const {
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                                [](int64_t byte, const Piece& each) { return byte < each.end; });
  if (end <= piece->end) return piece->data + (begin - piece->begin);
  for (int64_t at = begin; at < end; ++piece) {
    const int64_t stop = std::min(piece->end, end);
    std::memcpy(room + (at - begin), piece->data + (at - piece->begin),
                static_cast<size_t>(stop - at));
    at = stop;
  }
  return room;
}

const UnalignedFloat* WireValues::Read(int64_t begin, int64_t count, float* block) const {
  if (count == 0) return block;
  const int64_t first = begin * BytesOf(format_);
  const int64_t last = first + count * BytesOf(format_);
  if (format_ == NumberFormat::kFp32) {
    return reinterpret_cast<const UnalignedFloat*>(
        ReadBytes(first, last, reinterpret_cast<char*>(block)));
  }
  std::array<char, kBlockElements * 2> room;
  DecodeNumbers(format_, ReadBytes(first, last, room.data()), {block, static_cast<size_t>(count)});
  return block;
}

void WireValues::CopyBytesTo(char* to) const {
  for (const Piece& piece : pieces_) {
    char* const place = to + piece.begin;
    if (place == piece.data) continue;  // It was received there.
    std::memcpy(place, piece.data, static_cast<size_t>(piece.end - piece.begin));
  }
}

void WireValues::CopyTo(float* to) const {
  if (format_ == NumberFormat::kFp32) return CopyBytesTo(reinterpret_cast<char*>(to));
  for (int64_t begin = 0; begin < size_; begin += kBlockElements) {
    Read(begin, std::min(kBlockElements, size_ - begin), to + begin);
  }
}

void WireValues::CopyRowsTo(absl::Span<const uint32_t> places, int64_t dim, float* to) const {
  const int64_t rows_a_block = kBlockElements / dim;
  const auto row_bytes = static_cast<size_t>(dim) * sizeof(float);
  std::array<float, kBlockElements> block;
  for (int64_t row = 0; row < std::ssize(places); row += rows_a_block) {
    const int64_t rows = std::min(rows_a_block, std::ssize(places) - row);
    const UnalignedFloat* from = Read(row * dim, rows * dim, block.data());
    for (int64_t i = row; i < row + rows; ++i, from += dim) {
      std::memcpy(to + int64_t{places[static_cast<size_t>(i)]} * dim, from, row_bytes);
    }
  }
}

void WireValues::AppendTo(std::string* bytes) const {
  bytes->reserve(bytes->size() + static_cast<size_t>(size_) * sizeof(float));
  std::array<float, kBlockElements> block;
  for (int64_t begin = 0; begin < size_; begin += kBlockElements) {
    const int64_t n = std::min(kBlockElements, size_ - begin);
    const UnalignedFloat* values = Read(begin, n, block.data());
    bytes->append(reinterpret_cast<const char*>(values), static_cast<size_t>(n) * sizeof(float));
  }
}

}  // namespace capstan
