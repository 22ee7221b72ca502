// BodyCache: the bodies of a bucket's rows (weights, optimizer state, count) that are in memory;
// the others are on disk.
//
//   head in the slab: key (8 bytes), stamp (4), slot (4) --> body in memory
//                                            kOnDisk     --> body on disk, under the row's number
//
// Which bodies are in memory changes nothing that anyone can see. When there is no room, a hand
// goes round the slots and takes away what was not used lately (GCLOCK: Smith, "Sequentiality and
// prefetching in database systems", TODS 1978): a use counts up to kUsesMax, the hand counts down,
// and who has none left goes; to disk, if it changed since it was read.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_SPARSE_TABLE_BODY_CACHE_H_
#define CAPSTAN_SERVER_SPARSE_TABLE_BODY_CACHE_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/planted/planted_bug.h"
#include "server/sparse_table/row_disk.h"
#include "server/sparse_table/row_slab.h"

namespace capstan::server {

class BodyCache {
 public:
  using Slot = uint32_t;
  static constexpr Slot kOnDisk = ~Slot{0};
  static constexpr int64_t kSlotAt = 12;  // In a head.
  static constexpr int64_t kHeadBytes = 16;
  // There are so many whatever the memory.
  static constexpr size_t kSlotsMin = 4;

  // `body_bytes`: a multiple of 4, at most 1 MiB.
  BodyCache(int64_t body_bytes, std::unique_ptr<RowDisk> disk);

  // Bodies and what belongs to them may take so much memory from now on; kSlotsMin have room in
  // any case. Ends what Hold began. Errors: of the disk.
  absl::Status SetMemory(int64_t bytes, RowSlab* heads);

  // Rows that can be held and added at a time; at least kSlotsMin / 2.
  size_t held_max() const { return slots_max_ / 2; }
  // Brings the bodies of `rows`, which differ, into memory, where they stay until the next call.
  // Errors: of the disk; kResourceExhausted  no memory.
  absl::Status Hold(absl::Span<const RowNumber> rows, RowSlab* heads);
  // A body, unspecified, for a row that is new. It stays until the next Hold. Errors: as Hold.
  absl::Status Add(RowNumber row, RowSlab* heads);
  void Free(const char* head);  // The row's body is not needed any more.

  // REQUIRES: it is in memory.
  char* Of(const char* head) const { return At(SlotOf(head)); }
  void SetChanged(const char* head) {
    if (!Planted(PlantedBug::kForgetChangedRow)) entries_[SlotOf(head)].changed = true;
  }
  static bool IsOnDisk(const char* head) { return SlotOf(head) == kOnDisk; }

  // Bodies of rows that are on disk, one after the other, past the cache. `rows`: any order.
  absl::Status ReadPast(std::vector<RowNumber> rows, absl::Span<char* const> bodies) const;

  int64_t bodies() const { return static_cast<int64_t>(entries_.size() - free_.size()); }
  int64_t bytes() const;

 private:
  static constexpr uint8_t kUsesMax = 3;
  static constexpr size_t kSpillMin = 256;  // Bodies that are written at a time, if there are.

  struct Entry {
    RowNumber row = 0;
    uint32_t turn = 0;  // In which it was held last.
    uint8_t uses = 0;
    bool changed = false;
    bool taken = false;
  };

  static Slot SlotOf(const char* head) {
    Slot slot;
    std::memcpy(&slot, head + kSlotAt, sizeof(slot));
    return slot;
  }
  static void SetSlot(Slot slot, char* head) { std::memcpy(head + kSlotAt, &slot, sizeof(slot)); }
  char* At(Slot slot) const {
    return blocks_[slot >> block_bits_].get() + (slot & block_mask_) * body_bytes_;
  }

  // So many slots are free, or can be had without taking a body away.
  absl::Status MakeFree(size_t count, RowSlab* heads);
  std::vector<Slot> Victims(size_t count);
  // Writes those that changed, then frees all.
  absl::Status Spill(const std::vector<Slot>& victims, RowSlab* heads);
  absl::Status Truncate(size_t slots, RowSlab* heads);
  absl::StatusOr<Slot> Take(RowNumber row);  // REQUIRES: MakeFree.
  void Release(Slot slot);

  const size_t body_bytes_;
  const int block_bits_;  // A block has 2^block_bits_ bodies.
  const Slot block_mask_;
  std::unique_ptr<RowDisk> disk_;
  size_t slots_max_ = kSlotsMin;
  std::vector<Entry> entries_;
  std::vector<Slot> free_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  size_t hand_ = 0;
  uint32_t turn_ = 1;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_SPARSE_TABLE_BODY_CACHE_H_
