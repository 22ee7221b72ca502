// PayloadCache: the payloads of a bucket's rows (weights, optimizer state, count) that are in
// memory; the others are on disk.
//
//   head in the slab: key (8 bytes), stamp (4), slot (4) --> payload in memory
//                                   or when it left --> payload on disk, under the row's number
//
// Which payloads are in memory changes no result. S3-FIFO (Yang et al., "FIFO queues are all you
// need for cache eviction", SOSP 2023) chooses the payloads that leave for want of room: new ones
// share a tenth of the room until they are used again; most are not.
//
//   read, new --> short queue --used again--> long queue --used since--> its end once more
//                     | no                        ^    | no
//                     v                           |    v
//              leaves, and is read again soon ----'  leaves; to disk, if it changed meanwhile
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_PAYLOAD_CACHE_H_
#define CAPSTAN_SERVER_STORE_SPARSE_PAYLOAD_CACHE_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/planted/planted_bug.h"
#include "server/store/row_disk.h"
#include "server/store/sparse/rows/row_slab.h"

namespace capstan::server {

class PayloadCache {
 public:
  using Slot = uint32_t;
  static constexpr int64_t kSlotAt = 12;  // Its place in a head.
  static constexpr int64_t kHeadBytes = 16;
  // The cache has at least this many, whatever its memory.
  static constexpr size_t kSlotsMin = 4;

  // `payload_bytes`: a multiple of 4, at most 1 MiB.
  PayloadCache(int64_t payload_bytes, std::unique_ptr<RowDisk> disk);

  // Limits the memory of payloads and of the tables that belong to them; kSlotsMin payloads have
  // room in any case. Payloads that Hold kept may leave from now on. Errors: of the disk.
  absl::Status SetMemory(int64_t bytes, RowSlab* heads);

  // Rows that can be held and added at a time; at least kSlotsMin / 2.
  size_t held_max() const { return slots_max_ / 2; }
  // Brings the payloads of `rows`, which differ, into memory, where they stay until the next Hold,
  // TakeIn or SetMemory. Errors: of the disk; kResourceExhausted  no memory.
  absl::Status Hold(absl::Span<const RowNumber> rows, RowSlab* heads);
  // Begins to read the payloads that Hold would have to read for `rows`, up to held_max(), ahead of
  // it. Null: there are none.
  std::unique_ptr<RowFetch> BeginFetch(absl::Span<const RowNumber> rows,
                                       const RowSlab& heads) const;
  // Accepts the payloads that have arrived and are still what Hold would read; they stay as after
  // Hold. Errors: as Hold.
  absl::Status TakeIn(const RowFetch& fetch, RowSlab* heads);
  // Adds a payload, whose content is unspecified, for a new row. It stays as after Hold. Errors: as
  // Hold.
  absl::Status Add(RowNumber row, RowSlab* heads);
  void Free(RowNumber row, const RowSlab& heads);  // Its payload is not needed any more.

  // REQUIRES: it is in memory.
  char* Of(const char* head) const { return At(SlotOf(head)); }
  void SetChanged(const char* head) {
    Entry& entry = entries_[SlotOf(head)];
    if (entry.changed || Planted(PlantedBug::kForgetChangedRow)) return;
    entry.changed = true;
    if (Planted(PlantedBug::kTakeInOldPayload)) return;
    disk_->Forget(entry.row);
  }
  static bool IsOnDisk(const char* head) { return (SlotOf(head) & kOnDisk) != 0; }

  // Reads payloads of rows that are on disk without putting them into the cache. Errors: as
  // LostCopy.
  absl::Status ReadPast(absl::Span<const RowNumber> rows, absl::Span<char* const> payloads) const {
    return LostCopy(disk_->Read(rows, payloads));
  }

  // Turns an error of the rows' disk, whatever its code, into one of their table: kUnavailable with
  // the disk's message. Without its rows this copy is useless; a replica, a log or a checkpoint may
  // have them, as if this server had died.
  static absl::Status LostCopy(const absl::Status& of_disk);

  int64_t payloads() const { return static_cast<int64_t>(entries_.size() - free_.size()); }
  int64_t bytes() const;

 private:
  // The bit that is set in the slot in the head of a payload on disk. The other bits count the
  // payloads that had left the short queue when it did.
  static constexpr Slot kOnDisk = Slot{1} << 31;
  // One slot in kShortShare is for the short queue; it may take one in kShortShareMax if it must.
  static constexpr size_t kShortShare = 10;
  static constexpr size_t kShortShareMax = 3;
  static constexpr uint8_t kUsesMax = 7;
  // A pull and the push that follows it are two uses, but a pull that reads the payload from disk
  // is none.
  static constexpr uint8_t kUsesToStay = 2;
  static constexpr size_t kSpillMin = 256;  // Payloads written at a time, if there are so many.

  static constexpr Slot kNobody = ~Slot{0};
  using Turn = uint16_t;  // A turn 65,536 ago equals this one: its payloads stay.
  struct Entry {
    RowNumber row = 0;
    Slot before = kNobody;  // Its neighbour in its queue.
    Slot behind = kNobody;
    Turn turn = 0;  // The turn in which it was held last.
    uint8_t uses = 0;
    bool fetched : 1 = false;  // Read ahead: the next use is the one that it was read for.
    bool is_long : 1 = false;
    bool changed : 1 = false;
    bool spared : 1 = false;  // Once, in the long queue.
    bool taken : 1 = false;
  };
  static_assert(sizeof(Entry) == 16);
  struct Queue {
    Slot first = kNobody;
    Slot last = kNobody;
    size_t size = 0;
  };

  static Slot SlotOf(const char* head) {
    Slot slot;
    std::memcpy(&slot, head + kSlotAt, sizeof(slot));
    return slot;
  }
  static void SetSlot(Slot slot, char* head) { std::memcpy(head + kSlotAt, &slot, sizeof(slot)); }
  char* At(Slot slot) const {
    return blocks_[slot >> block_bits_].get() + (slot & block_mask_) * payload_bytes_;
  }

  // Makes sure that `count` slots can be taken; payloads may leave for them.
  absl::Status MakeFree(size_t count, RowSlab* heads);
  std::vector<Slot> Victims(size_t count);
  bool ShortIsNext() const;  // Whether the next payload to be looked at is of the short queue.
  // Decides on the first payload of a queue. True: it leaves. False: it moves to the end of a
  // queue.
  bool LookAtFirst(Queue* queue, Slot* slot);
  void Join(Slot slot, bool is_long);
  void Leave(Slot slot);  // Takes it out of its queue.
  Queue* QueueOf(const Entry& entry) { return entry.is_long ? &long_ : &short_; }
  // Whether a payload that lies on disk left the short queue so recently that it should have
  // stayed.
  bool LeftLately(const char* head) const {
    return ((left_ - SlotOf(head)) & ~kOnDisk) < slots_max_;
  }
  Slot LongAgo() const { return (left_ - (kOnDisk >> 1)) | kOnDisk; }
  // Writes those of `victims` that changed, then frees all of them.
  absl::Status Spill(const std::vector<Slot>& victims, RowSlab* heads);
  absl::Status Truncate(size_t slots, RowSlab* heads);
  absl::StatusOr<Slot> Take(RowNumber row, const RowSlab& heads);  // REQUIRES: MakeFree.
  void Release(Slot slot);

  const size_t payload_bytes_;
  const int block_bits_;  // A block has 2^block_bits_ payloads.
  const Slot block_mask_;
  std::unique_ptr<RowDisk> disk_;
  size_t slots_max_ = kSlotsMin;
  std::vector<Entry> entries_;
  std::vector<Slot> free_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  Queue short_;
  Queue long_;
  uint32_t left_ = 0;  // Payloads that have left the short queue.
  Turn turn_ = 1;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_PAYLOAD_CACHE_H_
