// SlotTree: adds the gradients of one iteration's M slots in an order that does not depend on their
// arrival; or, with backups, of those slots that arrive first.
//
// A binary tree over the slots; a node is a range [begin, begin + 2^k) with begin a multiple of
// 2^k, and its sum is left + right. A child that lies wholly beyond M is absent: the parent is then
// its left child. Floating-point addition is commutative though not associative, so fixing the
// pairs fixes the bits; which operand is the accumulator does not matter. For M = 6:
//
//                 [0,8)
//            [0,4)     [4,8) = [4,6)         sum = ((s0 + s1) + (s2 + s3)) + (s4 + s5)
//        [0,2) [2,4)   [4,6)
//        0  1   2  3    4  5
//
// A pair is added as soon as both halves are there, so at most about M / 2 gradients are kept. With
// backups the iteration is complete when all but `backups` slots have arrived; which ones, and so
// the sum, depends on the order of arrival.
// Thread safety: thread-compatible.
// Invariants: (1) the present nodes never overlap. (2) no two siblings are both present.
#ifndef CAPSTAN_SERVER_CORE_CONSISTENCY_SLOT_TREE_H_
#define CAPSTAN_SERVER_CORE_CONSISTENCY_SLOT_TREE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/types/job_limits.h"
#include "server/core/messages/messages.h"

namespace capstan::server {

// The actions that the arrival of a node asks for, in this order: drop, keep or add, then (if
// complete) apply the root.
struct SlotArrival {
  bool duplicate = false;           // Covered already: nothing changes, the rest is empty.
  std::vector<GradientId> dropped;  // Parts of the arrived node: it replaces them.
  bool keep = false;                // Keep the payload as `kept`; it is waiting for its sibling.
  GradientId kept;
  std::vector<AddGradient> additions;  // Done in this order; the first adds the payload.
  bool complete = false;  // Enough slots have arrived: `root` holds the sum; the tree is empty.
  GradientId root;        // kIncomingGradient if the payload alone is the sum.
};

class SlotTree {
 public:
  static constexpr int32_t kSlotsMax = capstan::kSlotsMax;

  // REQUIRES: 1 <= slots <= kSlotsMax, 0 <= backups < slots.
  explicit SlotTree(int32_t slots, int32_t backups = 0);

  // Whether [begin, end) is a node that may be pushed: inside [0, slots), its size a power of two
  // and its begin a multiple of it; with backups a single slot. Errors: kInvalidArgument, names the
  // range.
  absl::Status CheckNode(int32_t begin, int32_t end) const;

  // Accepts the node's payload. REQUIRES: CheckNode(begin, end) is OK.
  SlotArrival Arrive(int32_t begin, int32_t end);

  std::vector<SlotId> MissingSlots() const;  // Ascending.
  bool empty() const { return present_count_ == 0; }

 private:
  // Nodes are numbered as in a heap: root 1, children of n are 2n and 2n + 1, leaves from
  // leaf_count_ on.
  int32_t NodeOf(int32_t begin, int32_t end) const;
  int32_t FirstSlot(int32_t node) const;
  bool IsCovered(int32_t node) const;  // It or an ancestor is present.
  void DropDescendants(int32_t node, SlotArrival& arrival);
  // Adds `gradient` to the siblings that are present, level by level upwards. Returns the sum and
  // sets `node` to its node.
  GradientId AddSiblings(GradientId gradient, int32_t& node, SlotArrival& arrival);
  GradientId AddAll(GradientId gradient, SlotArrival& arrival);  // Adds it to all present nodes.
  void Put(int32_t node, GradientId gradient);
  GradientId Take(int32_t node);
  bool IsPresent(int32_t node) const { return present_[node]; }

  const int32_t slots_;
  const int32_t backups_;
  const int32_t leaf_count_;  // The power of two not below slots_.
  std::vector<bool> present_;
  std::vector<GradientId> gradients_;  // Valid where present_.
  int32_t present_count_ = 0;
  int32_t arrived_ = 0;  // Jobs with backups: slots of the present nodes.
  GradientId next_gradient_{1};
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_CONSISTENCY_SLOT_TREE_H_
