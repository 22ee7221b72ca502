#include "common/sparse/key_batch.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "common/sparse/key_hash.h"

namespace capstan {
namespace {

struct Entry {
  uint64_t hash;
  uint32_t index;  // Index in the caller's keys.
};

constexpr int kDigitBits = 11;
constexpr size_t kDigits = size_t{1} << kDigitBits;
constexpr size_t kRadixMin = 2048;  // Fewer are sorted by comparison.

// Sorts stably by the upper 33 bits in three passes, then sorts neighbours that agree in them.
void SortByHash(std::vector<Entry>* entries) {
  const auto less = [](const Entry& a, const Entry& b) {
    return a.hash < b.hash || (a.hash == b.hash && a.index < b.index);
  };
  if (entries->size() < kRadixMin) {
    std::sort(entries->begin(), entries->end(), less);
    return;
  }
  std::vector<Entry> other(entries->size());
  for (const int shift : {64 - 3 * kDigitBits, 64 - 2 * kDigitBits, 64 - kDigitBits}) {
    std::array<size_t, kDigits> next{};
    const auto digit = [shift](const Entry& e) { return (e.hash >> shift) & (kDigits - 1); };
    for (const Entry& e : *entries) ++next[digit(e)];
    size_t begin = 0;
    for (size_t& at : next) begin += std::exchange(at, begin);
    for (const Entry& e : *entries) other[next[digit(e)]++] = e;
    entries->swap(other);
  }
  constexpr int kUnsorted = 64 - 3 * kDigitBits;
  for (size_t i = 0; i < entries->size();) {
    size_t end = i + 1;
    while (end < entries->size() &&
           ((*entries)[end].hash >> kUnsorted) == ((*entries)[i].hash >> kUnsorted)) {
      ++end;
    }
    if (end - i > 1) {
      std::sort(entries->begin() + static_cast<int64_t>(i),
                entries->begin() + static_cast<int64_t>(end), less);
    }
    i = end;
  }
}

}  // namespace

KeyBatch MakeKeyBatch(absl::Span<const uint64_t> keys, int32_t buckets,
                      std::vector<uint32_t>* places) {
  std::vector<Entry> entries(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    entries[i] = {.hash = KeyHash(keys[i]), .index = static_cast<uint32_t>(i)};
  }
  SortByHash(&entries);
  KeyBatch batch;
  batch.keys.reserve(keys.size());
  batch.bucket_begin.reserve(static_cast<size_t>(buckets) + 1);
  if (places != nullptr) places->resize(keys.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (i == 0 || entry.hash != entries[i - 1].hash) {
      const auto bucket = static_cast<size_t>(PlaceOf(entry.hash, buckets).bucket);
      while (batch.bucket_begin.size() <= bucket) batch.bucket_begin.push_back(batch.size());
      batch.keys.push_back(KeyOfHash(entry.hash));  // This avoids a read at a random place.
    }
    if (places != nullptr) (*places)[entry.index] = static_cast<uint32_t>(batch.size() - 1);
  }
  batch.bucket_begin.resize(static_cast<size_t>(buckets) + 1, batch.size());
  return batch;
}

void NameLists(KeyBatch* batch) {
  batch->names.clear();
  const absl::Span<const uint64_t> keys = batch->keys;
  for (size_t bucket = 0; bucket + 1 < batch->bucket_begin.size(); ++bucket) {
    const Range part = batch->InBucket(static_cast<int64_t>(bucket));
    batch->names.push_back(NameOfKeys(
        keys.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.size()))));
  }
}

std::vector<float> SumByKey(absl::Span<const float> gradients, absl::Span<const uint32_t> places,
                            int64_t batch_keys, int64_t dim) {
  std::vector<float> sums(static_cast<size_t>(batch_keys * dim));
  const float* from = gradients.data();
  for (const uint32_t place : places) {
    float* const to = sums.data() + static_cast<int64_t>(place) * dim;
    for (int64_t c = 0; c < dim; ++c) to[c] += from[c];
    from += dim;
  }
  return sums;
}

}  // namespace capstan
