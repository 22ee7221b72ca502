#include "server/core/consistency/slot_tree.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"

namespace capstan::server {

SlotTree::SlotTree(int32_t slots, int32_t backups)
    : slots_(slots),
      backups_(backups),
      leaf_count_(static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(slots)))),
      present_(2 * leaf_count_),
      gradients_(2 * leaf_count_) {}

absl::Status SlotTree::CheckNode(int32_t begin, int32_t end) const {
  if (begin < 0 || end <= begin || end > slots_) {
    return absl::InvalidArgumentError(
        absl::StrCat("slots [", begin, ", ", end, "): expected a range inside [0, ", slots_, ")"));
  }
  const int32_t size = end - begin;
  if (backups_ > 0 && size > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "slots [", begin, ", ", end, "): expected a single slot, since the job has backups"));
  }
  if (!std::has_single_bit(static_cast<uint32_t>(size)) || begin % size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("slots [", begin, ", ", end,
                     "): expected a node of the summation tree, whose size "
                     "is a power of two and whose begin is a multiple of its size"));
  }
  return absl::OkStatus();
}

SlotArrival SlotTree::Arrive(int32_t begin, int32_t end) {
  SlotArrival arrival;
  int32_t node = NodeOf(begin, end);
  if (IsCovered(node)) {
    arrival.duplicate = true;
    return arrival;
  }
  DropDescendants(node, arrival);
  GradientId gradient = AddSiblings(kIncomingGradient, node, arrival);
  if (node == 1 || (backups_ > 0 && ++arrived_ == slots_ - backups_)) {
    arrival.complete = true;
    arrival.root = AddAll(gradient, arrival);
    return arrival;
  }
  if (gradient == kIncomingGradient) {
    gradient = next_gradient_;
    ++next_gradient_;
    arrival.keep = true;
    arrival.kept = gradient;
  }
  Put(node, gradient);
  return arrival;
}

GradientId SlotTree::AddSiblings(GradientId gradient, int32_t& node, SlotArrival& arrival) {
  for (; node != 1; node /= 2) {
    const int32_t sibling = node ^ 1;
    if (IsPresent(sibling)) {
      const GradientId into = Take(sibling);
      arrival.additions.push_back({.into = into, .from = gradient});
      gradient = into;
    } else if (FirstSlot(sibling) < slots_ - (Planted(PlantedBug::kReleaseBarrierEarly) ? 1 : 0)) {
      break;  // The sibling is still to come.
    }
  }
  return gradient;
}

GradientId SlotTree::AddAll(GradientId gradient, SlotArrival& arrival) {
  arrived_ = 0;
  for (int32_t node = 1; present_count_ > 0; ++node) {
    if (!IsPresent(node)) continue;
    const GradientId into = Take(node);
    arrival.additions.push_back({.into = into, .from = gradient});
    gradient = into;
  }
  return gradient;
}

std::vector<SlotId> SlotTree::MissingSlots() const {
  std::vector<SlotId> missing;
  for (int32_t slot = 0; slot < slots_; ++slot) {
    if (!IsCovered(leaf_count_ + slot)) missing.push_back(SlotId(slot));
  }
  return missing;
}

int32_t SlotTree::NodeOf(int32_t begin, int32_t end) const {
  const int32_t size = end - begin;
  return (leaf_count_ + begin) / size;
}

int32_t SlotTree::FirstSlot(int32_t node) const {
  while (node < leaf_count_) node *= 2;
  return node - leaf_count_;
}

bool SlotTree::IsCovered(int32_t node) const {
  for (; node >= 1; node /= 2) {
    if (IsPresent(node)) return true;
  }
  return false;
}

void SlotTree::DropDescendants(int32_t node, SlotArrival& arrival) {
  int32_t first = node, count = 1;
  while (first < leaf_count_) {
    first *= 2;
    count *= 2;
    for (int32_t child = first; child < first + count; ++child) {
      if (IsPresent(child)) arrival.dropped.push_back(Take(child));
    }
  }
}

void SlotTree::Put(int32_t node, GradientId gradient) {
  present_[node] = true;
  gradients_[node] = gradient;
  ++present_count_;
}

GradientId SlotTree::Take(int32_t node) {
  present_[node] = false;
  --present_count_;
  return gradients_[node];
}

}  // namespace capstan::server
