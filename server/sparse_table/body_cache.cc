#include "server/sparse_table/body_cache.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

constexpr size_t kBlockBytes = 64 << 10;

}  // namespace

BodyCache::BodyCache(int64_t body_bytes, std::unique_ptr<RowDisk> disk)
    : body_bytes_(static_cast<size_t>(body_bytes)),
      block_bits_(std::max(1, static_cast<int>(std::bit_width(kBlockBytes / body_bytes_))) - 1),
      block_mask_((Slot{1} << block_bits_) - 1),
      disk_(std::move(disk)) {}

int64_t BodyCache::bytes() const {
  return static_cast<int64_t>(entries_.size() * (body_bytes_ + sizeof(Entry)));
}

absl::Status BodyCache::SetMemory(int64_t bytes, RowSlab* heads) {
  ++turn_;
  const size_t slots =
      static_cast<size_t>(std::max<int64_t>(bytes, 0)) / (body_bytes_ + sizeof(Entry));
  slots_max_ = std::clamp(slots, kSlotsMin, size_t{kOnDisk});
  if (slots_max_ >= entries_.size()) return absl::OkStatus();
  // Whole blocks are given back, when there are some; until then there are too many slots.
  const size_t kept = ((slots_max_ + block_mask_) >> block_bits_) << block_bits_;
  if (kept < entries_.size()) CAPSTAN_RETURN_IF_ERROR(Truncate(kept, heads));
  slots_max_ = std::max(slots_max_, entries_.size());
  return absl::OkStatus();
}

absl::Status BodyCache::Truncate(size_t slots, RowSlab* heads) {
  std::vector<Slot> taken;
  for (size_t slot = slots; slot < entries_.size(); ++slot) {
    if (entries_[slot].taken) taken.push_back(static_cast<Slot>(slot));
  }
  CAPSTAN_RETURN_IF_ERROR(Spill(taken, heads));
  free_.erase(std::remove_if(free_.begin(), free_.end(), [&](Slot slot) { return slot >= slots; }),
              free_.end());
  entries_.resize(slots);
  blocks_.resize(slots >> block_bits_);
  if (hand_ >= slots) hand_ = 0;
  return absl::OkStatus();
}

absl::Status BodyCache::Hold(absl::Span<const RowNumber> rows, RowSlab* heads) {
  ++turn_;
  std::vector<RowNumber> missing;
  for (const RowNumber row : rows) {
    const Slot slot = SlotOf(heads->At(row));
    if (slot == kOnDisk) {
      missing.push_back(row);
      continue;
    }
    Entry& entry = entries_[slot];
    entry.turn = turn_;
    entry.uses = std::min<uint8_t>(kUsesMax, entry.uses + 1);
  }
  if (missing.empty()) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(MakeFree(missing.size(), heads));
  std::sort(missing.begin(), missing.end());
  std::vector<Slot> slots;
  std::vector<char*> bodies;
  absl::Status status;
  for (const RowNumber row : missing) {
    const absl::StatusOr<Slot> slot = Take(row);
    status = slot.status();
    if (!slot.ok()) break;
    slots.push_back(*slot);
    bodies.push_back(At(*slot));
  }
  if (status.ok()) status = disk_->Read(missing, bodies);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (status.ok()) {
      SetSlot(slots[i], heads->At(missing[i]));
    } else {
      Release(slots[i]);
    }
  }
  return status;
}

absl::Status BodyCache::Add(RowNumber row, RowSlab* heads) {
  SetSlot(kOnDisk, heads->At(row));
  CAPSTAN_RETURN_IF_ERROR(MakeFree(1, heads));
  CAPSTAN_ASSIGN_OR_RETURN(const Slot slot, Take(row));
  entries_[slot].changed = true;
  SetSlot(slot, heads->At(row));
  return absl::OkStatus();
}

void BodyCache::Free(const char* head) {
  if (!IsOnDisk(head)) Release(SlotOf(head));
}

absl::Status BodyCache::MakeFree(size_t count, RowSlab* heads) {
  const size_t unused = slots_max_ - std::min(slots_max_, entries_.size());
  if (free_.size() + unused >= count) return absl::OkStatus();
  const size_t several = std::min(kSpillMin, slots_max_ / 8);
  return Spill(Victims(std::max(count - free_.size() - unused, several)), heads);
}

// At least half of the slots are held by nobody, and each time round takes a use from them.
std::vector<BodyCache::Slot> BodyCache::Victims(size_t count) {
  std::vector<Slot> victims;
  const size_t looks_max = entries_.size() * (kUsesMax + 1);
  for (size_t looks = 0; looks < looks_max && victims.size() < count; ++looks) {
    const auto slot = static_cast<Slot>(hand_);
    hand_ = hand_ + 1 == entries_.size() ? 0 : hand_ + 1;
    Entry& entry = entries_[slot];
    if (!entry.taken || entry.turn == turn_) continue;
    if (entry.uses > 0) {
      --entry.uses;
    } else {
      entry.turn = turn_;  // The hand may come by once more.
      victims.push_back(slot);
    }
  }
  return victims;
}

absl::Status BodyCache::Spill(const std::vector<Slot>& victims, RowSlab* heads) {
  std::vector<std::pair<RowNumber, const char*>> changed;
  for (const Slot slot : victims) {
    if (entries_[slot].changed) changed.emplace_back(entries_[slot].row, At(slot));
  }
  std::sort(changed.begin(), changed.end());
  std::vector<RowNumber> rows;
  std::vector<const char*> bodies;
  for (const auto& [row, body] : changed) {
    rows.push_back(row);
    bodies.push_back(body);
  }
  if (!rows.empty()) CAPSTAN_RETURN_IF_ERROR(disk_->Write(rows, bodies));
  for (const Slot slot : victims) {
    SetSlot(kOnDisk, heads->At(entries_[slot].row));
    Release(slot);
  }
  return absl::OkStatus();
}

absl::StatusOr<BodyCache::Slot> BodyCache::Take(RowNumber row) {
  Slot slot = 0;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else {
    slot = static_cast<Slot>(entries_.size());
    if (slot >> block_bits_ == blocks_.size()) {
      char* const block = new (std::nothrow) char[body_bytes_ << block_bits_];
      if (block == nullptr) return absl::ResourceExhaustedError("no memory for rows");
      blocks_.emplace_back(block);
    }
    entries_.emplace_back();
  }
  entries_[slot] = {.row = row, .turn = turn_, .taken = true};
  return slot;
}

void BodyCache::Release(Slot slot) {
  entries_[slot].taken = false;
  free_.push_back(slot);
}

absl::Status BodyCache::ReadPast(std::vector<RowNumber> rows,
                                 absl::Span<char* const> bodies) const {
  std::vector<std::pair<RowNumber, char*>> order;
  for (size_t i = 0; i < rows.size(); ++i) order.emplace_back(rows[i], bodies[i]);
  std::sort(order.begin(), order.end());
  std::vector<char*> to;
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = order[i].first;
    to.push_back(order[i].second);
  }
  return disk_->Read(rows, to);
}

}  // namespace capstan::server
