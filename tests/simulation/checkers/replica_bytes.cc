#include "tests/simulation/checkers/replica_bytes.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

namespace capstan::sim {
namespace {

// Messages of a list, one after the other.
template <typename Messages>
bool AreEqual(const Messages& a, const Messages& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.SerializeAsString() == other.SerializeAsString();
  });
}

// The first part that differs; empty: none does.
std::string Difference(const v1::ShardSnapshot& a, const v1::ShardSnapshot& b) {
  if (a.state().version() != b.state().version()) return "version";
  if (a.values() != b.values()) return "values";
  if (a.optimizer_state_size() != b.optimizer_state_size()) return "optimizer state";
  for (int i = 0; i < a.optimizer_state_size(); ++i) {
    if (a.optimizer_state(i) != b.optimizer_state(i)) return "optimizer state";
  }
  const bool both = a.state().previous_readable() && b.state().previous_readable();
  if (both && a.previous() != b.previous()) return "previous version";
  if (a.bucket().SerializeAsString() != b.bucket().SerializeAsString()) {
    return "stamps, counts of pushes or counts of rows";
  }
  if (a.state().membership_generation() != b.state().membership_generation()) return "membership";
  if (!AreEqual(a.state().ticks(), b.state().ticks())) return "ticks";
  if (!AreEqual(a.state().members(), b.state().members())) return "clocks";
  if (!AreEqual(a.state().push_marks(), b.state().push_marks())) return "push marks or fences";
  return "";
}

}  // namespace

void ReplicaBytes::Look() {
  std::map<std::tuple<ShardKey, Term, int64_t>, v1::ShardSnapshot> seen;
  for (const std::vector<server::HeldCopy>& server : copies_()) {
    for (const server::HeldCopy& copy : server) {
      const auto [first, added] =
          seen.try_emplace({copy.shard, copy.term, copy.snapshot.position()}, copy.snapshot);
      Count(copy.snapshot.bucket().rows());
      if (added) continue;
      ++compared_;
      const std::string difference = Difference(first->second, copy.snapshot);
      if (difference.empty()) continue;
      Fail(absl::StrCat("replica bytes: two copies of table ", copy.shard.table.value(), " shard ",
                        copy.shard.shard.value(), " at position ", copy.snapshot.position(),
                        " of term ", copy.term.value(), " differ in their ", difference));
    }
  }
}

void ReplicaBytes::Count(const v1::RowCounts& rows) {
  refused_ += rows.refused() > 0 ? 1 : 0;
  evicted_ += rows.evicted_by_age() + rows.evicted_by_limit() > 0 ? 1 : 0;
}

void ReplicaBytes::Happened(const scheduler::Event& event) {
  if (std::holds_alternative<scheduler::EpochDone>(event)) Look();
}

void ReplicaBytes::Exported(const TaskKey&, const std::vector<std::vector<float>>&,
                            const std::map<TableId, Version>&) {
  Look();
}

}  // namespace capstan::sim
