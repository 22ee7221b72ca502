#include "server/store/sparse/payload_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

constexpr size_t kBlockBytes = 64 << 10;

}  // namespace

PayloadCache::PayloadCache(int64_t payload_bytes, std::unique_ptr<RowDisk> disk)
    : payload_bytes_(static_cast<size_t>(payload_bytes)),
      block_bits_(std::max(1, static_cast<int>(std::bit_width(kBlockBytes / payload_bytes_))) - 1),
      block_mask_((Slot{1} << block_bits_) - 1),
      disk_(std::move(disk)) {}

absl::Status PayloadCache::LostCopy(const absl::Status& of_disk) {
  if (of_disk.ok() || Planted(PlantedBug::kFailJobForBadDisk)) return of_disk;
  return absl::UnavailableError(absl::StrCat("this copy of the rows is lost: ", of_disk.message()));
}

int64_t PayloadCache::bytes() const {
  return static_cast<int64_t>(entries_.size() * (payload_bytes_ + sizeof(Entry))) + disk_->bytes();
}

absl::Status PayloadCache::SetMemory(int64_t bytes, RowSlab* heads) {
  ++turn_;
  const size_t slots = static_cast<size_t>(std::max<int64_t>(bytes - disk_->bytes(), 0)) /
                       (payload_bytes_ + sizeof(Entry));
  slots_max_ = std::clamp(slots, kSlotsMin, size_t{kOnDisk - 1});
  if (slots_max_ >= entries_.size()) return absl::OkStatus();
  // Only whole blocks are given back, so there may be more slots than the memory allows.
  const size_t kept = ((slots_max_ + block_mask_) >> block_bits_) << block_bits_;
  if (kept < entries_.size()) CAPSTAN_RETURN_IF_ERROR(Truncate(kept, heads));
  slots_max_ = std::max(slots_max_, entries_.size());
  return absl::OkStatus();
}

absl::Status PayloadCache::Truncate(size_t slots, RowSlab* heads) {
  std::vector<Slot> taken;
  for (size_t slot = slots; slot < entries_.size(); ++slot) {
    if (entries_[slot].taken) taken.push_back(static_cast<Slot>(slot));
  }
  CAPSTAN_RETURN_IF_ERROR(Spill(taken, heads));
  free_.erase(std::remove_if(free_.begin(), free_.end(), [&](Slot slot) { return slot >= slots; }),
              free_.end());
  entries_.resize(slots);
  blocks_.resize(slots >> block_bits_);
  return absl::OkStatus();
}

absl::Status PayloadCache::Hold(absl::Span<const RowNumber> rows, RowSlab* heads) {
  ++turn_;
  std::vector<RowNumber> missing;
  for (const RowNumber row : rows) {
    const char* const head = heads->At(row);
    if (IsOnDisk(head)) {
      missing.push_back(row);
      continue;
    }
    Entry& entry = entries_[SlotOf(head)];
    entry.turn = turn_;
    if (!entry.fetched) entry.uses = std::min<uint8_t>(kUsesMax, entry.uses + 1);
    entry.fetched = false;
  }
  if (missing.empty()) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(MakeFree(missing.size(), heads));
  std::vector<Slot> slots;
  std::vector<char*> payloads;
  absl::Status status;
  for (const RowNumber row : missing) {
    const absl::StatusOr<Slot> slot = Take(row, *heads);
    status = slot.status();
    if (!slot.ok()) break;
    slots.push_back(*slot);
    payloads.push_back(At(*slot));
  }
  if (status.ok()) status = LostCopy(disk_->Read(missing, payloads));
  for (size_t i = 0; i < slots.size(); ++i) {
    if (status.ok()) {
      SetSlot(slots[i], heads->At(missing[i]));
    } else {
      Release(slots[i]);
    }
  }
  return status;
}

std::unique_ptr<RowFetch> PayloadCache::BeginFetch(absl::Span<const RowNumber> rows,
                                                   const RowSlab& heads) const {
  std::vector<RowNumber> missing;
  for (const RowNumber row : rows) {
    if (IsOnDisk(heads.At(row)) && missing.size() < held_max()) missing.push_back(row);
  }
  return missing.empty() ? nullptr : disk_->BeginFetch(missing);
}

absl::Status PayloadCache::TakeIn(const RowFetch& fetch, RowSlab* heads) {
  ++turn_;
  std::vector<FetchedPayload> arrived = disk_->Arrived(fetch);
  // Another call may have read a payload meanwhile, and SetMemory may have left room for fewer.
  arrived.erase(std::remove_if(arrived.begin(), arrived.end(),
                               [&](const FetchedPayload& it) {
                                 const char* const head = heads->At(it.row);
                                 if (IsOnDisk(head)) return false;
                                 if (Planted(PlantedBug::kTakeInOldPayload)) {
                                   std::memcpy(Of(head), it.payload, payload_bytes_);
                                 }
                                 return true;
                               }),
                arrived.end());
  arrived.resize(std::min(arrived.size(), held_max()));
  CAPSTAN_RETURN_IF_ERROR(MakeFree(arrived.size(), heads));
  for (const FetchedPayload& it : arrived) {
    CAPSTAN_ASSIGN_OR_RETURN(const Slot slot, Take(it.row, *heads));
    entries_[slot].fetched = true;
    std::memcpy(At(slot), it.payload, payload_bytes_);
    SetSlot(slot, heads->At(it.row));
  }
  return absl::OkStatus();
}

absl::Status PayloadCache::Add(RowNumber row, RowSlab* heads) {
  SetSlot(LongAgo(), heads->At(row));
  CAPSTAN_RETURN_IF_ERROR(MakeFree(1, heads));
  CAPSTAN_ASSIGN_OR_RETURN(const Slot slot, Take(row, *heads));
  entries_[slot].changed = true;
  entries_[slot].uses = 1;  // The push that makes the row is one use.
  SetSlot(slot, heads->At(row));
  return absl::OkStatus();
}

void PayloadCache::Free(RowNumber row, const RowSlab& heads) {
  const char* const head = heads.At(row);
  if (!IsOnDisk(head)) Release(SlotOf(head));
  disk_->Forget(row);
}

absl::Status PayloadCache::MakeFree(size_t count, RowSlab* heads) {
  const size_t unused = slots_max_ - std::min(slots_max_, entries_.size());
  if (free_.size() + unused >= count) return absl::OkStatus();
  const size_t several = std::min(kSpillMin, slots_max_ / 8);
  return Spill(Victims(std::max(count - free_.size() - unused, several)), heads);
}

// Nobody holds at least half of the slots, so victims can be found.
std::vector<PayloadCache::Slot> PayloadCache::Victims(size_t count) {
  std::vector<Slot> victims;
  size_t looks = 3 * entries_.size();
  for (; looks > 0 && victims.size() < count; --looks) {
    Slot slot;
    if (LookAtFirst(ShortIsNext() ? &short_ : &long_, &slot)) victims.push_back(slot);
  }
  // All payloads of a queue may be held or in constant use: then any payload that is not held
  // leaves.
  for (Slot slot = 0; slot < entries_.size() && victims.size() < count; ++slot) {
    Entry& entry = entries_[slot];
    if (!entry.taken || entry.turn == turn_) continue;
    entry.turn = turn_;
    victims.push_back(slot);
  }
  return victims;
}

// A payload that was pulled and not changed should stay in memory for the push that follows.
bool PayloadCache::ShortIsNext() const {
  if (long_.size == 0) return true;
  if (short_.size <= slots_max_ / kShortShare) return false;
  return entries_[short_.first].changed || short_.size > slots_max_ / kShortShareMax;
}

bool PayloadCache::LookAtFirst(Queue* queue, Slot* slot) {
  *slot = queue->first;
  Entry& entry = entries_[*slot];
  Leave(*slot);
  const bool is_held = entry.turn == turn_;
  const bool is_used = entry.uses >= (entry.is_long ? 1 : kUsesToStay);
  // The payload was read and is not changed yet: its push may still come, so it goes round once
  // more.
  const bool is_spared = !is_used && entry.is_long && !entry.changed && !entry.spared;
  if (!is_held) {
    entry.spared = is_spared;
    if (is_used) entry.uses = entry.is_long ? entry.uses - 1 : 1;
  }
  Join(*slot, entry.is_long || (is_used && !is_held));
  if (is_held || is_used || is_spared) return false;
  entry.turn = turn_;  // It must not be looked at once more.
  return true;
}

void PayloadCache::Join(Slot slot, bool is_long) {
  Entry& entry = entries_[slot];
  entry.is_long = is_long;
  Queue& queue = *QueueOf(entry);
  entry.before = queue.last;
  entry.behind = kNobody;
  (queue.last == kNobody ? queue.first : entries_[queue.last].behind) = slot;
  queue.last = slot;
  ++queue.size;
}

void PayloadCache::Leave(Slot slot) {
  const Entry& entry = entries_[slot];
  Queue& queue = *QueueOf(entry);
  (entry.before == kNobody ? queue.first : entries_[entry.before].behind) = entry.behind;
  (entry.behind == kNobody ? queue.last : entries_[entry.behind].before) = entry.before;
  --queue.size;
}

absl::Status PayloadCache::Spill(const std::vector<Slot>& victims, RowSlab* heads) {
  std::vector<RowNumber> rows;
  std::vector<const char*> payloads;
  for (const Slot slot : victims) {
    if (!entries_[slot].changed) continue;
    rows.push_back(entries_[slot].row);
    payloads.push_back(At(slot));
  }
  if (!rows.empty()) CAPSTAN_RETURN_IF_ERROR(LostCopy(disk_->Write(rows, payloads)));
  for (const Slot slot : victims) {
    const Entry& entry = entries_[slot];
    if (!entry.is_long) ++left_;
    SetSlot(entry.is_long ? LongAgo() : left_ | kOnDisk, heads->At(entry.row));
    Release(slot);
  }
  return absl::OkStatus();
}

absl::StatusOr<PayloadCache::Slot> PayloadCache::Take(RowNumber row, const RowSlab& heads) {
  Slot slot = 0;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else {
    slot = static_cast<Slot>(entries_.size());
    if (slot >> block_bits_ == blocks_.size()) {
      char* const block = new (std::nothrow) char[payload_bytes_ << block_bits_];
      if (block == nullptr) return absl::ResourceExhaustedError("no memory for rows");
      blocks_.emplace_back(block);
    }
    entries_.emplace_back();
  }
  const bool is_long = LeftLately(heads.At(row));
  entries_[slot] = {.row = row, .turn = turn_, .uses = is_long, .taken = true};
  Join(slot, is_long);
  return slot;
}

void PayloadCache::Release(Slot slot) {
  Leave(slot);
  entries_[slot].taken = false;
  free_.push_back(slot);
}

}  // namespace capstan::server
