#include "tests/simulation/checkers/exactly_once_ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/random/philox.h"

namespace capstan::sim {
namespace {

constexpr uint64_t kLinearForm = 0x4C4544474552;
constexpr size_t kUnknownMax = 40;  // Pushes whose fate the ledger can find out: 2^20 sums a half.

// The numbers are whole: no rounding.
uint64_t NumberOf(absl::Span<const float> values) {
  uint64_t number = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    number += static_cast<uint64_t>(static_cast<int64_t>(values[i])) * MixKey(kLinearForm, i);
  }
  return number;
}

std::vector<uint64_t> SubsetSums(absl::Span<const uint64_t> numbers) {
  std::vector<uint64_t> sums = {0};
  for (const uint64_t number : numbers) {
    const size_t count = sums.size();
    for (size_t i = 0; i < count; ++i) sums.push_back(sums[i] + number);
  }
  std::sort(sums.begin(), sums.end());
  return sums;
}

// Returns whether some of `numbers` sum to `target`.
bool Explains(absl::Span<const uint64_t> numbers, uint64_t target) {
  const size_t half = numbers.size() / 2;
  const std::vector<uint64_t> one = SubsetSums(numbers.subspan(0, half));
  for (const uint64_t sum : SubsetSums(numbers.subspan(half))) {
    if (std::binary_search(one.begin(), one.end(), target - sum)) return true;
  }
  return false;
}

}  // namespace

void ExactlyOnceLedger::PushSent(const ShardPush& push) {
  if (history_.IsOld(push.task_key)) return;
  Push& known = pushes_[{push.shard, push.task_key, push.batch.epoch, push.batch.positions.begin}];
  const uint64_t number = NumberOf(push.values);
  if (known.number != 0 && known.number != number) {
    Fail("exactly once: a push was repeated with another gradient");
  }
  known.number = number;
}

void ExactlyOnceLedger::PushAcknowledged(const TaskKey& task_key, ShardKey shard,
                                         const Batch& batch, Version) {
  if (history_.IsOld(task_key)) return;
  pushes_[{shard, task_key, batch.epoch, batch.positions.begin}].acknowledged = true;
}

void ExactlyOnceLedger::RoutingSent(const scheduler::Routing& routing) {
  if (shards_.empty()) shards_ = routing.shards;
}

void ExactlyOnceLedger::Exported(const TaskKey& task_key,
                                 const std::vector<std::vector<float>>& tables,
                                 const std::map<TableId, Version>&) {
  superseded_ = moved_by_tasks_ && history_.IsOld(task_key);
  if (superseded_) return;
  for (const scheduler::ShardRoute& shard : shards_) {
    if (workload_->rows_come_and_go() && shard.key.table == TableId(0)) {
      CheckVersion(shard.key, read_[{task_key, shard.key}]);
    } else {
      CheckShard(shard, tables[static_cast<size_t>(shard.key.table.value())]);
    }
  }
}

void ExactlyOnceLedger::AtEnd(bool succeeded) {
  if (succeeded && superseded_) {
    Fail("exactly once: the model at the end is of a task that died before the job went back");
  }
}

ExactlyOnceLedger::Sent ExactlyOnceLedger::SentTo(ShardKey shard) const {
  Sent sent;
  for (const auto& [key, push] : pushes_) {
    if (std::get<0>(key) != shard) continue;
    if (push.acknowledged) {
      sent.acknowledged_sum += push.number;
      ++sent.acknowledged;
    } else {
      sent.unknown.push_back(push.number);
    }
  }
  return sent;
}

void ExactlyOnceLedger::CheckVersion(ShardKey shard, Version version) {
  const Sent sent = SentTo(shard);
  const int64_t most = sent.acknowledged + static_cast<int64_t>(sent.unknown.size());
  if (version.value() >= sent.acknowledged && version.value() <= most) return;
  Fail(absl::StrCat("exactly once: table ", shard.table.value(), " shard ", shard.shard.value(),
                    " is at version ", version.value(), ", expected its ", sent.acknowledged,
                    " acknowledged pushes and some of the ", sent.unknown.size(), " others"));
}

void ExactlyOnceLedger::CheckShard(const scheduler::ShardRoute& shard,
                                   const std::vector<float>& values) {
  const Arrays initial = workload_->InitialValues();
  std::vector<float> moved;  // Initial minus final: the sum of what was applied.
  const Range part = workload_->PartOf(shard.key, shard.elements);
  for (int64_t i = part.begin; i < part.end; ++i) {
    const auto e = static_cast<size_t>(i);
    moved.push_back(initial[static_cast<size_t>(shard.key.table.value())][e] - values[e]);
  }
  const Sent sent = SentTo(shard.key);
  if (sent.unknown.size() > kUnknownMax) {
    return Fail(absl::StrCat("exactly once: ", sent.unknown.size(),
                             " pushes of unknown fate, expected at most ", kUnknownMax));
  }
  if (Explains(sent.unknown, NumberOf(moved) - sent.acknowledged_sum)) return;
  Fail(absl::StrCat("exactly once: table ", shard.key.table.value(), " shard ",
                    shard.key.shard.value(), " is not its ", sent.acknowledged,
                    " acknowledged pushes and some of the ", sent.unknown.size(), " others"));
}

}  // namespace capstan::sim
