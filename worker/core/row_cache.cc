#include "worker/core/row_cache.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/planted/planted_bug.h"
#include "common/sparse/key_hash.h"

namespace capstan::worker {
namespace {

constexpr size_t kKeysAhead = 8;  // The index entry of the key so far ahead is prefetched.

}  // namespace

bool RowCache::Usable(const Slot& slot, int64_t iteration) const {
  const int64_t until = slot.until + (Planted(PlantedBug::kKeepRowTooLong) ? 1 : 0);
  return iteration <= until || Planted(PlantedBug::kKeepStaleRow);
}

float* RowCache::RowOf(int64_t slot) {
  return chunks_[static_cast<size_t>(slot / kChunkRows)].data() + slot % kChunkRows * options_.dim;
}

WantedKeys RowCache::Begin(std::shared_ptr<const KeyBatch> batch, Iteration iteration,
                           absl::Span<float> rows) {
  pull_ = {.iteration = iteration.value(), .oldest = iteration.value()};
  const std::vector<uint64_t>& keys = batch->keys;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i + kKeysAhead < keys.size()) index_.prefetch(keys[i + kKeysAhead]);
    const auto found = index_.find(keys[i]);
    if (found == index_.end()) {
      pull_.wanted.push_back(static_cast<uint32_t>(i));
      pull_.slots_of.push_back(kNone);
      continue;
    }
    Slot& slot = slots_[static_cast<size_t>(found->second)];
    slot.uses = std::min<uint8_t>(kUsesMax, slot.uses + 1);
    if (!Usable(slot, iteration.value())) {
      pull_.wanted.push_back(static_cast<uint32_t>(i));
      pull_.slots_of.push_back(found->second);
      continue;
    }
    pull_.oldest = std::min(pull_.oldest, slot.floor);
    std::copy_n(RowOf(found->second), options_.dim,
                rows.data() + static_cast<int64_t>(i) * options_.dim);
  }
  pull_.batch = std::move(batch);
  return MakeWantedKeys(*pull_.batch, pull_.wanted);
}

RowsRead RowCache::End(const Answer& answer, absl::Span<const float> rows) {
  const auto pulled = static_cast<int64_t>(pull_.wanted.size());
  const int64_t cached = pull_.batch->size() - pulled;
  const bool dropped = options_.by_floor &&
                       (answer.membership == Generation(0) || answer.membership != membership_) &&
                       !Planted(PlantedBug::kKeepRowsOfOldMembers);
  if (dropped) {
    Clear();
    membership_ = answer.membership;
    std::fill(pull_.slots_of.begin(), pull_.slots_of.end(), kNone);
    if (cached > 0) return {.again = true};
  }
  const int64_t floor = pull_.iteration - answer.staleness;
  const int64_t until = (options_.by_floor ? floor : pull_.iteration) + options_.bound;
  const bool known = !options_.by_floor || answer.membership != Generation(0);
  if (known && until > pull_.iteration) TakeIn(floor, until, rows);
  return {.staleness = std::max(answer.staleness, pull_.iteration - pull_.oldest),
          .cached = cached,
          .pulled = pulled};
}

void RowCache::TakeIn(int64_t floor, int64_t until, absl::Span<const float> rows) {
  int64_t steps = this->rows();
  const size_t count = pull_.wanted.size();
  // Keys are ordered by hash, and the first ones find room: each pull begins at another key.
  const size_t first = count == 0 ? 0 : KeyHash(++pulls_) % count;
  for (size_t k = first; k < count; ++k) TakeIn(k, floor, until, rows, &steps);
  for (size_t k = 0; k < first; ++k) TakeIn(k, floor, until, rows, &steps);
}

void RowCache::TakeIn(size_t wanted, int64_t floor, int64_t until, absl::Span<const float> rows,
                      int64_t* steps) {
  const uint32_t place = pull_.wanted[wanted];
  int64_t slot = pull_.slots_of[wanted];
  if (slot == kNone) slot = MakeRoom(pull_.batch->keys[place], steps);
  if (slot == kNone) return;
  slots_[static_cast<size_t>(slot)].floor = floor;
  slots_[static_cast<size_t>(slot)].until = until;
  std::copy_n(rows.data() + int64_t{place} * options_.dim, options_.dim, RowOf(slot));
}

int64_t RowCache::MakeRoom(uint64_t key, int64_t* steps) {
  if (const int64_t slot = rows(); slot < options_.rows_max) {
    if (slot % kChunkRows == 0) {
      const int64_t most = std::min(kChunkRows, options_.rows_max - slot);
      chunks_.emplace_back(static_cast<size_t>(most * options_.dim));
    }
    slots_.emplace_back();
    return Put(key, slot);
  }
  if (!MissedLately(key)) return kNone;
  for (; *steps > 0; --*steps) {
    const auto slot = static_cast<int64_t>(hand_);
    hand_ = (hand_ + 1) % slots_.size();
    Slot& passed = slots_[static_cast<size_t>(slot)];
    if (passed.uses > 0) {
      --passed.uses;
      continue;
    }
    --*steps;
    index_.erase(passed.key);
    return Put(key, slot);
  }
  return kNone;
}

int64_t RowCache::Put(uint64_t key, int64_t slot) {
  slots_[static_cast<size_t>(slot)] = {.key = key};
  index_[key] = slot;
  return slot;
}

bool RowCache::MissedLately(uint64_t key) {
  const uint64_t hash = KeyHash(key);
  if (missed_.empty()) missed_.resize(static_cast<size_t>(options_.rows_max * kMissedARow));
  const auto mark = static_cast<uint16_t>(hash | 1);
  return std::exchange(missed_[(hash >> 16) % missed_.size()], mark) == mark;
}

void RowCache::Clear() {
  index_.clear();
  slots_.clear();
  chunks_.clear();
  hand_ = 0;
}

int64_t RowCache::bytes() const {
  const size_t floats = slots_.size() * static_cast<size_t>(options_.dim);
  const size_t entry = sizeof(std::pair<uint64_t, int64_t>) + 1;
  const size_t marks = missed_.size() * sizeof(uint16_t);
  return static_cast<int64_t>(floats * sizeof(float) + slots_.capacity() * sizeof(Slot) +
                              index_.capacity() * entry + marks);
}

}  // namespace capstan::worker
