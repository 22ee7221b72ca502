// PartOf: divides the samples of a batch among several devices.
//
// Parts are as equal as possible, in the order of the members: the first n % members have one
// sample more. If there are fewer samples than members the last ones have none.
// Thread safety: a pure function.
#ifndef CAPSTAN_WORKER_TRAINING_BATCH_PARTS_H_
#define CAPSTAN_WORKER_TRAINING_BATCH_PARTS_H_

#include <algorithm>
#include <cstdint>

#include "worker/training/step/step_arrays.h"

namespace capstan::worker {

struct BatchPart {
  int64_t begin = 0, end = 0;  // Samples of the batch.
  int64_t n() const { return end - begin; }
};

// REQUIRES: n >= 0, 0 <= member < members.
inline BatchPart PartOf(int64_t n, int64_t member, int64_t members) {
  const int64_t each = n / members, more = n % members;
  const int64_t begin = each * member + std::min(member, more);
  return {begin, begin + each + (member < more ? 1 : 0)};
}

// The samples of a part, under the batch's name.
inline BatchView ViewOf(const BatchView& batch, const BatchPart& part) {
  if (part.n() == batch.n()) return batch;
  const auto begin = static_cast<size_t>(part.begin), n = static_cast<size_t>(part.n());
  const auto part_of = [&](auto all) {
    const size_t each = all.size() / batch.labels.size();
    return all.subspan(begin * each, n * each);
  };
  return {.images = part_of(batch.images),
          .labels = part_of(batch.labels),
          .name = batch.name,
          .targets = part_of(batch.targets),
          .pixels = part_of(batch.pixels),
          .pixel_values = batch.pixel_values};
}

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_BATCH_PARTS_H_
