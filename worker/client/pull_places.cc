#include "worker/client/pull_places.h"

#include <utility>

namespace capstan::worker {
namespace {

int64_t BytesOf(const PullPlaces::Part& part) { return part.elements.size() * sizeof(float); }

}  // namespace

std::vector<PullPlaces::Part> PullPlaces::PartsOf(const SendMessage& message,
                                                  const Formats& formats,
                                                  const AllTableKeys& keys) {
  std::vector<Part> parts;
  for (const SendMessage::Shard& shard : message.shards) {
    const bool as_they_are = FormatIn(message, shard, formats) == NumberFormat::kFp32 &&
                             KeysOf(shard, keys).wanted == nullptr;
    parts.push_back(
        {.table = shard.key.table, .elements = as_they_are ? PartOf(shard, keys) : Range()});
  }
  return parts;
}

std::optional<BodyPlaces::Place> PullPlaces::Next(absl::string_view come) {
  ValuesFinder::Values values;
  const ValuesFinder::Outcome outcome = finder_.Next(come, &values);
  if (outcome == ValuesFinder::Outcome::kMore) return std::nullopt;
  if (outcome == ValuesFinder::Outcome::kLost || values.shard >= parts_.size()) return Place();
  const Part& part = parts_[values.shard];
  const int64_t bytes = BytesOf(part);
  if (bytes < kBytesMin || static_cast<int64_t>(values.size) != bytes) return Place();
  if (begin_ != nullptr) arrays_ = std::exchange(begin_, nullptr)();
  if (arrays_ == nullptr) return Place();
  float* const table = (*arrays_)[static_cast<size_t>(part.table.value())].data();
  return Place{.skip = values.begin,
               .to = {reinterpret_cast<char*>(table + part.elements.begin), values.size}};
}

}  // namespace capstan::worker
