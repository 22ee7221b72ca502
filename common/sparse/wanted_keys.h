// WantedKeys: the keys of a batch whose rows a pull asks for; the caller has the other rows.
//
// Messages name them by a bit for each key of a bucket's list: bit i % 8 of byte i / 8.
// Thread safety: values; pure functions.
#ifndef CAPSTAN_COMMON_SPARSE_WANTED_KEYS_H_
#define CAPSTAN_COMMON_SPARSE_WANTED_KEYS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/sparse/key_batch.h"
#include "common/types/ids.h"

namespace capstan {

struct WantedKeys {
  std::vector<uint32_t> places;       // Places in the batch's keys, ascending.
  std::vector<int64_t> bucket_begin;  // [buckets + 1], of `places`.

  int64_t size() const { return static_cast<int64_t>(places.size()); }
  // The places of one bucket.
  absl::Span<const uint32_t> InBucket(int64_t bucket) const;
};

// `places`: in the keys of `batch`, ascending.
WantedKeys MakeWantedKeys(const KeyBatch& batch, std::vector<uint32_t> places);

// The bits of a bucket's keys, which are `list` of the batch's keys; empty if all are wanted.
std::string WantedBits(const Range& list, absl::Span<const uint32_t> wanted);

// The keys that are wanted. Errors: kInvalidArgument  `bits` does not fit the number of keys.
absl::StatusOr<std::vector<uint64_t>> KeysOfBits(absl::Span<const uint64_t> list,
                                                 absl::string_view bits);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_WANTED_KEYS_H_
