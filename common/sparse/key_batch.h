// KeyBatch: the keys of a sparse table that one operation names, each once, in the order of
// messages (ascending by hash), cut where buckets end.
//
//   std::vector<uint32_t> places;
//   KeyBatch batch = MakeKeyBatch(keys_of_the_samples, buckets, &places);
//   row of keys_of_the_samples[i] = rows + places[i] * dim
//
// Thread safety: values; pure functions.
#ifndef CAPSTAN_COMMON_SPARSE_KEY_BATCH_H_
#define CAPSTAN_COMMON_SPARSE_KEY_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "common/sparse/key_list_name.h"
#include "common/types/ids.h"

namespace capstan {

struct KeyBatch {
  std::vector<uint64_t> keys;
  std::vector<int64_t> bucket_begin;  // [buckets + 1], of `keys`.
  std::vector<KeyListName> names;     // [buckets], one for the keys of each; or empty.

  int64_t size() const { return static_cast<int64_t>(keys.size()); }
  // The keys of one bucket.
  Range InBucket(int64_t bucket) const {
    const auto at = static_cast<size_t>(bucket);
    return {.begin = bucket_begin[at], .end = bucket_begin[at + 1]};
  }
};

inline constexpr size_t kBatchKeysMax = std::numeric_limits<uint32_t>::max();

// Makes a batch of `keys`, which may have any order and repetitions; at most kBatchKeysMax. If
// `places` is not null, (*places)[i] is where keys[i] is in the batch. Cost: some 20 ns a key (a
// radix sort by hash).
KeyBatch MakeKeyBatch(absl::Span<const uint64_t> keys, int32_t buckets,
                      std::vector<uint32_t>* places = nullptr);

// Sets batch->names.
void NameLists(KeyBatch* batch);

// Adds up the gradients of keys that occur several times: sums[places[i]] += gradients[i], rows of
// `dim`, in the order of i. Returns [batch keys, dim].
std::vector<float> SumByKey(absl::Span<const float> gradients, absl::Span<const uint32_t> places,
                            int64_t batch_keys, int64_t dim);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_KEY_BATCH_H_
