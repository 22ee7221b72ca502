#include "common/sparse/wanted_keys.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace capstan {
namespace {

constexpr size_t kBits = 8;  // The bits of a byte.

size_t BytesFor(size_t keys) { return (keys + kBits - 1) / kBits; }

}  // namespace

absl::Span<const uint32_t> WantedKeys::InBucket(int64_t bucket) const {
  const auto at = static_cast<size_t>(bucket);
  const auto begin = static_cast<size_t>(bucket_begin[at]);
  const auto end = static_cast<size_t>(bucket_begin[at + 1]);
  return absl::MakeConstSpan(places).subspan(begin, end - begin);
}

WantedKeys MakeWantedKeys(const KeyBatch& batch, std::vector<uint32_t> places) {
  WantedKeys wanted{.places = std::move(places), .bucket_begin = {}};
  wanted.bucket_begin.reserve(batch.bucket_begin.size());
  size_t at = 0;
  for (const int64_t begin : batch.bucket_begin) {
    while (at < wanted.places.size() && wanted.places[at] < begin) ++at;
    wanted.bucket_begin.push_back(static_cast<int64_t>(at));
  }
  return wanted;
}

std::string WantedBits(const Range& list, absl::Span<const uint32_t> wanted) {
  if (static_cast<int64_t>(wanted.size()) == list.size()) return "";
  std::string bits(BytesFor(static_cast<size_t>(list.size())), '\0');
  for (const uint32_t place : wanted) {
    const auto key = static_cast<size_t>(place - list.begin);
    bits[key / kBits] = static_cast<char>(bits[key / kBits] | (1 << (key % kBits)));
  }
  return bits;
}

absl::StatusOr<std::vector<uint64_t>> KeysOfBits(absl::Span<const uint64_t> list,
                                                 absl::string_view bits) {
  if (bits.size() != BytesFor(list.size())) {
    return absl::InvalidArgumentError(absl::StrCat("wanted: ", bits.size(), " bytes, expected ",
                                                   BytesFor(list.size()), " for ", list.size(),
                                                   " keys"));
  }
  std::vector<uint64_t> keys;
  keys.reserve(list.size());
  for (size_t key = 0; key < bits.size() * kBits; ++key) {
    if ((static_cast<unsigned char>(bits[key / kBits]) >> (key % kBits) & 1) == 0) continue;
    if (key >= list.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("wanted: bit ", key, " is set, expected bits below ", list.size()));
    }
    keys.push_back(list[key]);
  }
  return keys;
}

}  // namespace capstan
