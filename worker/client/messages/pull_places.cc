#include "worker/client/messages/pull_places.h"

#include <utility>

#include "absl/status/statusor.h"
#include "common/wire/tensor_message.h"

namespace capstan::worker {
namespace {

int64_t BytesOf(const PullPlaces::Part& part) {
  return part.elements.size() * (part.half ? sizeof(uint16_t) : sizeof(float));
}

}  // namespace

std::vector<PullPlaces::Part> PullPlaces::PartsOf(const SendMessage& message,
                                                  const Formats& formats, const AllTableKeys& keys,
                                                  const HalfArrays* halves) {
  std::vector<Part> parts;
  for (const SendMessage::Shard& shard : message.shards) {
    const bool half = IsHalf(message, shard, formats, halves);
    const bool as_they_are = half || (FormatIn(message, shard, formats) == NumberFormat::kFp32 &&
                                      KeysOf(shard, keys).wanted == nullptr);
    parts.push_back({.table = shard.key.table,
                     .elements = as_they_are ? PartOf(shard, keys) : Range(),
                     .half = half});
  }
  return parts;
}

bool PullPlaces::HasPlace(size_t shard) const {
  const int64_t bytes = BytesOf(parts_[shard]);
  return bytes >= kBytesMin && sizes_[shard] == bytes;
}

std::optional<PayloadPlaces::Place> PullPlaces::Next(absl::string_view come) {
  if (sizes_.empty()) {
    absl::StatusOr<std::optional<PayloadStart>> start = ReadPayloadStart(come);
    if (start.ok() && !start->has_value()) return std::nullopt;
    if (!start.ok() || (*start)->sizes.size() != parts_.size()) return Place();
    skip_ = (*start)->values_begin();
    sizes_ = std::move((*start)->sizes);
  }
  while (next_ < sizes_.size() && !HasPlace(next_)) skip_ += sizes_[next_++];
  if (next_ == sizes_.size()) return Place();
  if (skip_ > come.size()) return std::nullopt;
  if (begin_ != nullptr) arrays_ = std::exchange(begin_, nullptr)();
  if (!arrays_.IsPull()) return Place();
  const Part& part = parts_[next_];
  char* const to = arrays_.PlaceOf(part.table, part.elements.begin, part.half);
  return Place{.skip = std::exchange(skip_, 0), .to = {to, sizes_[next_++]}};
}

}  // namespace capstan::worker
