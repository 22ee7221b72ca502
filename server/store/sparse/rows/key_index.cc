#include "server/store/sparse/rows/key_index.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "common/sparse/key_hash.h"
#include "common/status/status_macros.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace capstan::server {
namespace {

constexpr size_t kPrefetchAhead = 16;
constexpr size_t kRegionBytes = 32 << 20;
// The bounds of the share of used entries at which a segment is full.
constexpr double kFullMin = 0.6;
constexpr double kFullMax = 0.85;

}  // namespace

uint64_t KeyIndex::Places::Of(uint64_t key) const { return PlaceOf(KeyHash(key), buckets).place; }

KeyIndex::Group* KeyIndex::AllocateGroups(int group_bits) {
  const size_t bytes = sizeof(Group) << group_bits;
  Group* groups = nullptr;
  if (std::vector<Group*>& free = free_[static_cast<size_t>(group_bits)]; !free.empty()) {
    groups = free.back();
    free.pop_back();
    std::memset(static_cast<void*>(groups), 0, bytes);
  } else {
    if (regions_.empty() || region_used_ + bytes > kRegionBytes) {
      // A small index takes small pages.
      auto region = PageRegion::Map(std::max(kRegionBytes, bytes),
                                    regions_.empty() ? PageRegion::kHugePage : 0);
      if (!region.ok()) return nullptr;
      regions_.push_back(*std::move(region));
      region_used_ = 0;
    }
    groups = reinterpret_cast<Group*>(regions_.back().data() + region_used_);
    region_used_ += bytes;
  }
  bytes_ += static_cast<int64_t>(bytes);
  return groups;
}

void KeyIndex::FreeGroups(Group* groups, int group_bits) {
  bytes_ -= static_cast<int64_t>(sizeof(Group) << group_bits);
  free_[static_cast<size_t>(group_bits)].push_back(groups);
}

void KeyIndex::Renew(int32_t segment, int group_bits) {
  // The fractions of multiples of the golden ratio are spread evenly, however many there are.
  const double share =
      kFullMin + (kFullMax - kFullMin) * std::fmod(segment * std::numbers::phi, 1.0);
  const auto entries = static_cast<double>(kEntries << group_bits);
  segments_[static_cast<size_t>(segment)] = {.size_max = static_cast<int64_t>(share * entries)};
}

absl::StatusOr<KeyIndex> KeyIndex::Make(Places places) {
  KeyIndex index;
  index.places_ = places;
  Group* const groups = index.AllocateGroups(0);
  if (groups == nullptr) return absl::ResourceExhaustedError("no memory for an index");
  index.directory_.push_back({.groups = groups});
  index.segments_.emplace_back();
  index.Renew(0, 0);
  return index;
}

// Returns a bit mask of the entries with this tag.
uint32_t KeyIndex::Matches(const Group& group, uint8_t tag) {
#if defined(__SSE2__)
  const __m128i tags = _mm_load_si128(reinterpret_cast<const __m128i*>(group.tags.data()));
  const __m128i equal = _mm_cmpeq_epi8(tags, _mm_set1_epi8(static_cast<char>(tag)));
  return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & ((1u << kEntries) - 1);
#else
  uint32_t matches = 0;
  for (int i = 0; i < kEntries; ++i) {
    matches |= static_cast<uint32_t>(group.tags[static_cast<size_t>(i)] == tag) << i;
  }
  return matches;
#endif
}

template <typename Accept>
RowNumber KeyIndex::Search(uint64_t place, Accept accept) const {
  const Entry& entry = EntryOf(place);
  const uint64_t mask = (uint64_t{1} << entry.group_bits) - 1;
  uint64_t g = GroupOf(entry, place);
  for (uint64_t tried = 0; tried <= mask; ++tried, g = (g + 1) & mask) {
    const Group& group = entry.groups[g];
    for (uint32_t left = Matches(group, TagOf(place)); left != 0; left &= left - 1) {
      const RowNumber row = group.rows[static_cast<size_t>(std::countr_zero(left))];
      if (accept(row)) return row;
    }
    if (group.passed == 0) break;
  }
  return kNone;
}

RowNumber KeyIndex::Guess(uint64_t place) const {
  return Search(place, [](RowNumber) { return true; });
}

RowNumber KeyIndex::Find(uint64_t key, uint64_t place, const RowSlab& rows) const {
  return Search(place, [&](RowNumber row) { return rows.KeyAt(row) == key; });
}

absl::Status KeyIndex::Insert(uint64_t place, RowNumber row, const RowSlab& rows) {
  while (IsFull(segments_[static_cast<size_t>(EntryOf(place).segment)])) {
    CAPSTAN_RETURN_IF_ERROR(Grow(place, rows));
  }
  Put(place, row);
  ++size_;
  return absl::OkStatus();
}

absl::Status KeyIndex::Reserve(int64_t entries, const RowSlab& rows) {
  for (uint64_t place = 0;;) {
    const Entry& entry = EntryOf(place);
    const Segment& segment = segments_[static_cast<size_t>(entry.segment)];
    if ((entries >> entry.depth) >= segment.size_max && entry.depth < kDepthMax) {
      CAPSTAN_RETURN_IF_ERROR(Grow(place, rows));
      continue;
    }
    place = NextPlace(entry, place);
    if (place == 0) return absl::OkStatus();
  }
}

void KeyIndex::Put(uint64_t place, RowNumber row) {
  const Entry& entry = EntryOf(place);
  ++segments_[static_cast<size_t>(entry.segment)].size;
  const uint64_t mask = (uint64_t{1} << entry.group_bits) - 1;
  for (uint64_t g = GroupOf(entry, place);; g = (g + 1) & mask) {
    Group& group = entry.groups[g];
    const uint32_t free = Matches(group, 0);
    if (free == 0) {
      if (group.passed != kManyPassed) ++group.passed;
      continue;
    }
    const auto at = static_cast<size_t>(std::countr_zero(free));
    group.tags[at] = TagOf(place);
    group.rows[at] = row;
    return;
  }
}

void KeyIndex::Erase(uint64_t place, RowNumber row) {
  const Entry& entry = EntryOf(place);
  const uint64_t mask = (uint64_t{1} << entry.group_bits) - 1;
  for (uint64_t g = GroupOf(entry, place);; g = (g + 1) & mask) {
    Group& group = entry.groups[g];
    for (uint32_t left = Matches(group, TagOf(place)); left != 0; left &= left - 1) {
      const auto at = static_cast<size_t>(std::countr_zero(left));
      if (group.rows[at] != row) continue;
      group.tags[at] = 0;
      --segments_[static_cast<size_t>(entry.segment)].size;
      --size_;
      return;
    }
    if (group.passed != kManyPassed) --group.passed;
  }
}

absl::Status KeyIndex::Grow(uint64_t place, const RowSlab& rows) {
  const Entry entry = EntryOf(place);
  std::vector<RowNumber> moved;
  AppendRows(place, &moved);
  const bool split = entry.group_bits >= kGroupBitsSplit && entry.depth < kDepthMax;
  const int group_bits = split ? entry.group_bits : entry.group_bits + 1;
  Group* const lower = AllocateGroups(group_bits);
  Group* const upper = split ? AllocateGroups(group_bits) : lower;
  if (lower == nullptr || upper == nullptr) {
    if (lower != nullptr) FreeGroups(lower, group_bits);
    if (split && upper != nullptr) FreeGroups(upper, group_bits);
    return absl::ResourceExhaustedError("no memory for an index to grow");
  }
  if (split) {
    Split(entry, place, lower, upper);
  } else {
    Widen(entry, place, lower);
  }
  FreeGroups(entry.groups, entry.group_bits);
  for (size_t i = 0; i < moved.size(); ++i) {
    if (i + kPrefetchAhead < moved.size()) __builtin_prefetch(rows.At(moved[i + kPrefetchAhead]));
    Put(places_.Of(rows.KeyAt(moved[i])), moved[i]);
  }
  return absl::OkStatus();
}

absl::Span<KeyIndex::Entry> KeyIndex::Covered(const Entry& entry, uint64_t place) {
  const size_t count = size_t{1} << (directory_bits_ - entry.depth);
  return absl::MakeSpan(directory_).subspan(IndexOf(place) & ~(count - 1), count);
}

void KeyIndex::Widen(Entry entry, uint64_t place, Group* groups) {
  entry.groups = groups;
  ++entry.group_bits;
  for (Entry& covered : Covered(entry, place)) covered = entry;
  Renew(entry.segment, entry.group_bits);
}

void KeyIndex::Split(Entry entry, uint64_t place, Group* lower, Group* upper) {
  if (entry.depth == directory_bits_) {  // The directory doubles: it gets each entry twice.
    std::vector<Entry> twice;
    twice.reserve(2 * directory_.size());
    for (const Entry& each : directory_) twice.insert(twice.end(), 2, each);
    directory_ = std::move(twice);
    ++directory_bits_;
  }
  const absl::Span<Entry> covered = Covered(entry, place);
  const auto half = covered.begin() + static_cast<int64_t>(covered.size() / 2);
  ++entry.depth;
  entry.groups = lower;
  std::fill(covered.begin(), half, entry);
  Renew(entry.segment, entry.group_bits);
  entry.groups = upper;
  entry.segment = static_cast<int32_t>(segments_.size());
  std::fill(half, covered.end(), entry);
  segments_.emplace_back();
  Renew(entry.segment, entry.group_bits);
}

void KeyIndex::AppendGroup(const Group& group, std::vector<RowNumber>* rows) {
  for (size_t at = 0; at < kEntries; ++at) {
    if (group.tags[at] != 0) rows->push_back(group.rows[at]);
  }
}

uint64_t KeyIndex::AppendRows(uint64_t place, std::vector<RowNumber>* rows) const {
  const Entry& entry = EntryOf(place);
  for (uint64_t g = 0; g < uint64_t{1} << entry.group_bits; ++g) {
    AppendGroup(entry.groups[g], rows);
  }
  return NextPlace(entry, place);
}

uint64_t KeyIndex::AppendRun(uint64_t place, std::vector<RowNumber>* rows) const {
  const Entry& entry = EntryOf(place);
  const uint64_t end = GroupOf(entry, place) + kRunGroups;
  uint64_t next = NextPlace(entry, place);
  if (end < uint64_t{1} << entry.group_bits) {
    const uint64_t in_segment = end << (64 - entry.depth - entry.group_bits);
    next = in_segment;
    if (entry.depth > 0) next |= place >> (64 - entry.depth) << (64 - entry.depth);
  }
  AppendBetween(place, next - 1, rows);
  return next;
}

void KeyIndex::AppendBetween(uint64_t first, uint64_t last, std::vector<RowNumber>* rows) const {
  for (uint64_t place = first;;) {
    const Entry& entry = EntryOf(place);
    const uint64_t next = NextPlace(entry, place);
    const bool ends_here = next == 0 || next > last;
    const uint64_t home_last = GroupOf(entry, ends_here ? last : next - 1);
    const uint64_t mask = (uint64_t{1} << entry.group_bits) - 1;
    uint64_t g = GroupOf(entry, place);
    bool behind = false;  // Whether the walk has reached home_last: overflow may follow.
    for (uint64_t tried = 0; tried <= mask; ++tried, g = (g + 1) & mask) {
      AppendGroup(entry.groups[g], rows);
      behind |= g == home_last;
      if (behind && entry.groups[g].passed == 0) break;
    }
    if (ends_here) return;
    place = next;
  }
}

uint64_t KeyIndex::NextPlace(const Entry& entry, uint64_t place) {
  if (entry.depth == 0) return 0;
  const int shift = 64 - entry.depth;
  return ((place >> shift) + 1) << shift;
}

}  // namespace capstan::server
