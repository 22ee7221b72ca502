// KeyIndex: an open-addressing index from a key's place to its row, stored apart from the rows.
//
// Twelve entries share a cache line: a tag of 8 bits and a row number each, compared at once. The
// rest of a key is compared in its row, which the caller reads anyway.
//
//   place: |directory bits|group bits|...|tag|
//              |              |
//              v              v
//   directory --> segment: [group][group]... --full line: the next group of the segment, cyclically
//
// A full segment doubles until it has 64 KiB, then it splits in two (extendible hashing: Fagin,
// Nievergelt, Pippenger, Strong, TODS 1979), so that growth moves at most some 10,000 entries at a
// time, whatever the size. Segments are full at 60 to 85 %, each at its own share: otherwise all of
// a table would split within few insertions. A line counts the entries that have passed it by, so
// that a search knows where to end, and erasing leaves no tombstone (as F14: Bronson, Shi,
// "Open-sourcing F14", 2019).
//
// Groups stand in the order of places: keys that are looked for in ascending order of their places
// walk through the memory of the index once.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_ROWS_KEY_INDEX_H_
#define CAPSTAN_SERVER_STORE_SPARSE_ROWS_KEY_INDEX_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/store/sparse/rows/page_region.h"
#include "server/store/sparse/rows/row_slab.h"

namespace capstan::server {

class KeyIndex {
 public:
  static constexpr RowNumber kNone = ~RowNumber{0};
  static constexpr uint64_t kRunGroups = 32;

  // The place of a key in its bucket (common/sparse/key_hash.h), for the keys of one bucket.
  struct Places {
    int32_t buckets = 1;
    uint64_t Of(uint64_t key) const;
  };

  // Errors: kResourceExhausted  no memory.
  static absl::StatusOr<KeyIndex> Make(Places places);

  // Brings the line where the place is looked for first into the cache.
  void Prefetch(uint64_t place) const { __builtin_prefetch(&HomeOf(place)); }

  // The row of the first entry that may be that of the key, found without reading the rows; kNone:
  // the key is not here.
  RowNumber Guess(uint64_t place) const;

  // The row with `key`, whose place is `place`; kNone: it is not here.
  RowNumber Find(uint64_t key, uint64_t place, const RowSlab& rows) const;

  // REQUIRES: no key of this place is here; `rows` has the keys of all rows that are.
  // Errors: kResourceExhausted  no memory to grow; nothing changes.
  absl::Status Insert(uint64_t place, RowNumber row, const RowSlab& rows);

  // Grows until `entries` in all, spread evenly, have room.
  // Errors: as Insert.
  absl::Status Reserve(int64_t entries, const RowSlab& rows);
  // Upper bound of bytes() after Reserve of an empty index: a segment was cut in two, or doubled,
  // because its share of the entries filled it to 60 % or more.
  static int64_t ReservedBytesMax(int64_t entries) {
    return int64_t{sizeof(Group)} + entries * kReservedBytesPerEntryMax;
  }

  // REQUIRES: it was inserted.
  void Erase(uint64_t place, RowNumber row);

  int64_t size() const { return size_; }
  int64_t bytes() const { return bytes_; }

  // Appends the rows of the segment with `place`, in no order, and returns where the next segment
  // begins; 0 after the last one. A caller visits all rows with it, segment by segment. An
  // insertion may cut a segment in two.
  uint64_t AppendRows(uint64_t place, std::vector<RowNumber>* rows) const;
  // The same in small pieces: appends all rows with places from `place` on and below the result (0:
  // up to the last place), and perhaps some others. It reads kRunGroups groups, and those behind
  // them that hold entries for which these had no room.
  uint64_t AppendRun(uint64_t place, std::vector<RowNumber>* rows) const;

  // Appends the rows of places in [first, last], in no order, and some of their neighbours.
  void AppendBetween(uint64_t first, uint64_t last, std::vector<RowNumber>* rows) const;

 private:
  static constexpr int kEntries = 12;  // Entries of a group.
  // 2 * 64 / (0.6 * 12) = 17.8, and where 7 of the 12 entries of a single group fill it, 18.3.
  static constexpr int64_t kReservedBytesPerEntryMax = 19;
  static constexpr int kGroupBitsSplit = 10;   // A segment of 64 KiB splits.
  static constexpr int kDepthMax = 20;         // In so deep a directory it doubles instead.
  static constexpr int kGroupBitsMax = 40;     // Only keys made to collide reach kDepthMax.
  static constexpr uint8_t kManyPassed = 255;  // The count stays there.

  struct alignas(64) Group {
    std::array<uint8_t, kEntries> tags;  // 0: free.
    uint8_t passed;                      // Entries that would be here, were there room.
    std::array<uint8_t, 3> unused;
    std::array<RowNumber, kEntries> rows;
  };
  static_assert(sizeof(Group) == 64);

  struct Segment {
    int64_t size = 0;
    int64_t size_max = 0;
  };
  // The part of a segment that a lookup needs, in one cache line with its neighbours.
  struct Entry {
    Group* groups = nullptr;
    int32_t segment = 0;
    int8_t depth = 0;       // Directory bits that its places have in common.
    int8_t group_bits = 0;  // It has 2^group_bits groups.
  };

  KeyIndex() = default;

  // A tag is made of bits that choose no group in tables of up to 2^24 buckets. It is never 0.
  static uint8_t TagOf(uint64_t place) {
    const auto tag = static_cast<uint8_t>(place >> 24);
    return tag == 0 ? 1 : tag;
  }
  // Returns 2^group_bits groups without entries; null if there is no memory.
  Group* AllocateGroups(int group_bits);
  void FreeGroups(Group* groups, int group_bits);
  void Renew(int32_t segment, int group_bits);  // Resets its counts: its groups are new.
  static uint32_t Matches(const Group& group, uint8_t tag);
  static void AppendGroup(const Group& group, std::vector<RowNumber>* rows);

  size_t IndexOf(uint64_t place) const { return (place >> 1) >> (63 - directory_bits_); }
  const Entry& EntryOf(uint64_t place) const { return directory_[IndexOf(place)]; }
  static uint64_t GroupOf(const Entry& entry, uint64_t place) {
    return ((place << entry.depth) >> 1) >> (63 - entry.group_bits);
  }
  const Group& HomeOf(uint64_t place) const {
    const Entry& entry = EntryOf(place);
    return entry.groups[GroupOf(entry, place)];
  }
  // The first row along the search whose entry has the tag of `place` and which `accept` accepts.
  template <typename Accept>
  RowNumber Search(uint64_t place, Accept accept) const;
  static bool IsFull(const Segment& segment) { return segment.size >= segment.size_max; }
  void Put(uint64_t place, RowNumber row);  // REQUIRES: there is room.
  absl::Status Grow(uint64_t place, const RowSlab& rows);
  void Widen(Entry entry, uint64_t place, Group* groups);
  void Split(Entry entry, uint64_t place, Group* lower, Group* upper);
  // Returns the begin of the segment behind that of `place`; 0: it is the last one.
  static uint64_t NextPlace(const Entry& entry, uint64_t place);
  // All entries of the directory that `entry` covers; `place` is in it.
  absl::Span<Entry> Covered(const Entry& entry, uint64_t place);

  Places places_;
  int directory_bits_ = 0;
  std::vector<Entry> directory_;  // 2^directory_bits_.
  std::vector<Segment> segments_;
  // The memory of all groups, and the groups that are no longer in use, by group_bits.
  std::vector<PageRegion> regions_;
  size_t region_used_ = 0;  // Bytes of the last region.
  std::array<std::vector<Group*>, kGroupBitsMax + 1> free_ = {};
  int64_t size_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_ROWS_KEY_INDEX_H_
