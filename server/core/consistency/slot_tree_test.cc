#include "server/core/consistency/slot_tree.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <vector>

#include "common/random/permutation.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"

namespace capstan::server::slot_tree_test {
namespace {

// A sum as text, "(a+b)" with the lower slots on the left: equal texts are equal bits in any
// arithmetic whose addition commutes.
struct Sum {
  int32_t begin = 0;
  std::string text;
};

Sum Add(const Sum& a, const Sum& b) {
  const auto& [left, right] = a.begin < b.begin ? std::pair(a, b) : std::pair(b, a);
  return {left.begin, "(" + left.text + "+" + right.text + ")"};
}

// The specification: the tree's shape by plain recursion.
Sum Expected(int32_t begin, int32_t size, int32_t slots) {
  if (size == 1) return {begin, std::to_string(begin)};
  const Sum left = Expected(begin, size / 2, slots);
  const int32_t middle = begin + size / 2;
  return middle >= slots ? left : Add(left, Expected(middle, size / 2, slots));
}

Sum ExpectedRoot(int32_t slots) {
  return Expected(0, static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(slots))), slots);
}

// A tree whose gradients are sums as text.
class TextTree {
 public:
  explicit TextTree(int32_t slots, int32_t backups = 0) : tree_(slots, backups), slots_(slots) {}

  // Pushes the node as a worker would: already summed if it has several slots.
  SlotArrival Push(int32_t begin, int32_t end) {
    const Sum payload = Expected(begin, end - begin, slots_);
    SlotArrival arrival = tree_.Arrive(begin, end);
    for (const GradientId id : arrival.dropped) REQUIRE(kept_.erase(id) == 1);
    if (arrival.keep) REQUIRE(kept_.insert({arrival.kept, payload}).second);
    for (const AddGradient& add : arrival.additions) {
      const Sum from = add.from == kIncomingGradient ? payload : kept_.at(add.from);
      kept_.at(add.into) = Add(kept_.at(add.into), from);
      if (add.from != kIncomingGradient) kept_.erase(add.from);
    }
    if (arrival.complete) {
      root_ = arrival.root == kIncomingGradient ? payload : kept_.at(arrival.root);
      kept_.erase(arrival.root);
    }
    kept_max_ = std::max(kept_max_, kept_.size());
    return arrival;
  }

  const std::string& root() const { return root_.text; }
  size_t kept() const { return kept_.size(); }
  size_t kept_max() const { return kept_max_; }
  const SlotTree& tree() const { return tree_; }

 private:
  SlotTree tree_;
  int32_t slots_;
  std::map<GradientId, Sum> kept_;
  Sum root_;
  size_t kept_max_ = 0;
};

std::vector<int32_t> Slots(int32_t count) {
  std::vector<int32_t> order(count);
  for (int32_t i = 0; i < count; ++i) order[i] = i;
  return order;
}

TEST_CASE("Slot tree: the sums are those of the fixed tree", "[server][core]") {
  CHECK(ExpectedRoot(1).text == "0");
  CHECK(ExpectedRoot(3).text == "((0+1)+2)");
  CHECK(ExpectedRoot(6).text == "(((0+1)+(2+3))+(4+5))");
}

TEST_CASE("Slot tree: every order of arrival adds the same pairs", "[server][core]") {
  for (int32_t slots = 1; slots <= 6; ++slots) {
    std::vector<int32_t> order = Slots(slots);
    do {
      TextTree tree(slots);
      for (int32_t i = 0; i < slots; ++i) {
        const SlotArrival arrival = tree.Push(order[i], order[i] + 1);
        REQUIRE_FALSE(arrival.duplicate);
        REQUIRE(arrival.complete == (i + 1 == slots));
      }
      REQUIRE(tree.root() == ExpectedRoot(slots).text);
      REQUIRE(tree.kept() == 0);
      REQUIRE(tree.tree().empty());
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST_CASE("Slot tree: 1000 slots in random order add the same pairs, with at most half kept",
          "[server][core]") {
  const int32_t slots = 1000;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    TextTree tree(slots);
    for (const uint32_t slot : MakePermutation(seed, slots)) {
      tree.Push(static_cast<int32_t>(slot), static_cast<int32_t>(slot) + 1);
    }
    CHECK(tree.root() == ExpectedRoot(slots).text);
    CHECK(tree.kept_max() <= 500);
  }
}

TEST_CASE("Slot tree: random nodes, overlapping and repeated, add the same pairs",
          "[server][core]") {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    const int32_t slots = 1 + static_cast<int32_t>(seed % 13);
    TextTree tree(slots);
    uint64_t draw = 0;
    bool complete = false;
    while (!complete) {
      const int32_t size = 1 << (PhiloxWord(seed, draw++) % 4);
      const int32_t begin = static_cast<int32_t>(PhiloxWord(seed, draw++) % 16) / size * size;
      if (!tree.tree().CheckNode(begin, begin + size).ok()) continue;
      const std::vector<SlotId> missing = tree.tree().MissingSlots();
      const bool adds_something = std::any_of(missing.begin(), missing.end(), [&](SlotId slot) {
        return slot.value() >= begin && slot.value() < begin + size;
      });
      const SlotArrival arrival = tree.Push(begin, begin + size);
      REQUIRE(arrival.duplicate == !adds_something);
      complete = arrival.complete;
    }
    REQUIRE(tree.root() == ExpectedRoot(slots).text);
    REQUIRE(tree.kept() == 0);
  }
}

TEST_CASE("Slot tree: a slot that is in already is a duplicate", "[server][core]") {
  TextTree tree(4);
  tree.Push(1, 2);
  CHECK(tree.Push(1, 2).duplicate);
  SECTION("also once it has been added to its neighbour") {
    tree.Push(0, 1);
    CHECK(tree.Push(1, 2).duplicate);
    CHECK(tree.Push(0, 2).duplicate);
  }
  SECTION("also when it moved up because it has no neighbour") {
    TextTree odd(3);
    odd.Push(2, 3);
    CHECK(odd.Push(2, 3).duplicate);
    CHECK_FALSE(odd.Push(0, 2).duplicate);
    CHECK(odd.root() == "((0+1)+2)");
  }
}

TEST_CASE("Slot tree: a node replaces the parts of it that have arrived", "[server][core]") {
  TextTree tree(8);
  tree.Push(0, 1);
  tree.Push(3, 4);
  const SlotArrival arrival = tree.Push(0, 4);
  CHECK(arrival.dropped.size() == 2);
  CHECK(arrival.keep);
  CHECK(tree.kept() == 1);
  CHECK(tree.tree().MissingSlots() ==
        std::vector<SlotId>{SlotId(4), SlotId(5), SlotId(6), SlotId(7)});
  CHECK(tree.Push(4, 8).complete);
  CHECK(tree.root() == ExpectedRoot(8).text);
}

TEST_CASE("Slot tree: a single slot is complete at once and keeps nothing", "[server][core]") {
  TextTree tree(1);
  const SlotArrival arrival = tree.Push(0, 1);
  CHECK(arrival.complete);
  CHECK(arrival.root == kIncomingGradient);
  CHECK(tree.kept_max() == 0);
}

// The slots of a sum as text, ascending.
std::vector<int> SlotsOf(const std::string& sum) {
  std::vector<int> slots;
  int slot = -1;
  for (const char c : sum + ")") {
    if (c >= '0' && c <= '9') {
      slot = 10 * std::max(slot, 0) + (c - '0');
    } else if (slot >= 0) {
      slots.push_back(slot);
      slot = -1;
    }
  }
  std::sort(slots.begin(), slots.end());
  return slots;
}

TEST_CASE("Slot tree: with backups the first slots are summed, whichever they are",
          "[server][core]") {
  for (int32_t slots = 2; slots <= 12; ++slots) {
    for (int32_t backups = 1; backups < slots; ++backups) {
      CAPTURE(slots, backups);
      TextTree tree(slots, backups);
      const auto needed = static_cast<size_t>(slots - backups);
      for (uint64_t iteration = 0; iteration < 20; ++iteration) {
        const auto order = MakePermutation(MixKey(iteration, static_cast<uint64_t>(slots)), slots);
        std::vector<int> first;
        bool complete = false;
        for (size_t i = 0; !complete; ++i) {
          const auto slot = static_cast<int32_t>(order[i]);
          first.push_back(slot);
          complete = tree.Push(slot, slot + 1).complete;
        }
        REQUIRE(first.size() == needed);
        std::sort(first.begin(), first.end());
        REQUIRE(SlotsOf(tree.root()) == first);
        REQUIRE(tree.kept() == 0);
        REQUIRE(tree.tree().empty());
      }
    }
  }
}

TEST_CASE("Slot tree: with backups slots come one by one", "[server][core]") {
  const SlotTree tree(4, 1);
  REQUIRE_OK(tree.CheckNode(2, 3));
  CHECK_STATUS(tree.CheckNode(2, 4), absl::StatusCode::kInvalidArgument,
               "slots [2, 4): expected a single slot, since the job has backups");
}

TEST_CASE("Slot tree: ranges that are no node are refused by name", "[server][core]") {
  const SlotTree tree(6);
  const auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(tree.CheckNode(-1, 0), invalid, "slots [-1, 0): expected a range inside [0, 6)");
  CHECK_STATUS(tree.CheckNode(2, 2), invalid, "slots [2, 2)");
  CHECK_STATUS(tree.CheckNode(4, 8), invalid, "slots [4, 8): expected a range inside [0, 6)");
  CHECK_STATUS(tree.CheckNode(0, 3), invalid, "power of two");
  CHECK_STATUS(tree.CheckNode(1, 3), invalid, "multiple of its size");
  CHECK_STATUS(tree.CheckNode(2147483647, -2147483648), invalid, "expected a range");
  REQUIRE_OK(tree.CheckNode(4, 6));
}

TEST_CASE("Slot tree: fp32 sums have the same bits in every order", "[server][core]") {
  std::vector<int32_t> order = Slots(6);
  const auto gradient = [](int32_t slot) { return ToUnitFloat(PhiloxWord(7, slot)) * 1e3f - 3e2f; };
  const float expected =
      ((gradient(0) + gradient(1)) + (gradient(2) + gradient(3))) + (gradient(4) + gradient(5));
  do {
    SlotTree tree(6);
    std::map<GradientId, float> kept;
    for (const int32_t slot : order) {
      const SlotArrival arrival = tree.Arrive(slot, slot + 1);
      if (arrival.keep) kept[arrival.kept] = gradient(slot);
      for (const AddGradient& add : arrival.additions) {
        kept[add.into] += add.from == kIncomingGradient ? gradient(slot) : kept[add.from];
      }
      if (arrival.complete) {
        REQUIRE(std::bit_cast<uint32_t>(kept[arrival.root]) == std::bit_cast<uint32_t>(expected));
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

}  // namespace
}  // namespace capstan::server::slot_tree_test
