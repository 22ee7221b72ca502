#include "common/examples/sets/block_examples.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/permutation.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

// Returns [n + 1] numbers: where each of n parts of these sizes begins, and where the last one
// ends.
std::vector<int64_t> BeginsOf(const std::vector<int64_t>& counts) {
  std::vector<int64_t> begins(counts.size() + 1);
  std::partial_sum(counts.begin(), counts.end(), begins.begin() + 1);
  return begins;
}

// Splits `range` at the borders of the parts and calls use(part, begin, end) for each piece;
// `begin` and `end` count from the part's beginning.
template <typename Use>
absl::Status ForEachPart(const std::vector<int64_t>& begins, const Range& range, Use use) {
  const auto behind = std::upper_bound(begins.begin(), begins.end(), range.begin);
  auto part = static_cast<size_t>(behind - begins.begin()) - 1;
  for (int64_t at = range.begin; at < range.end; ++part) {
    const int64_t end = std::min(range.end, begins[part + 1]);
    if (end == at) continue;
    CAPSTAN_RETURN_IF_ERROR(use(part, at - begins[part], end - begins[part]));
    at = end;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExampleSet>> BlockExamples::Make(
    std::unique_ptr<RangeReader> reader, std::vector<FileRange> ranges,
    const std::vector<int64_t>& counts) {
  std::vector<int64_t> begins = BeginsOf(counts);
  if (ranges.size() != counts.size() || begins.back() == 0) {
    return absl::DataLossError(
        absl::StrCat(ranges[0].path, ": the files have ", ranges.size(), " blocks, of which ",
                     counts.size(), " were counted with ", begins.back(),
                     " examples; expected the files that the job was submitted with"));
  }
  return std::unique_ptr<ExampleSet>(
      new BlockExamples(std::move(reader), std::move(ranges), std::move(begins)));
}

absl::StatusOr<BlockExamples::Block*> BlockExamples::ReadBlock(size_t number) {
  for (auto& block : blocks_) {
    if (block == nullptr || block->number != number) continue;
    std::swap(block, blocks_[0]);
    return blocks_[0].get();
  }
  std::swap(blocks_[0], blocks_[1]);
  auto block = std::make_unique<Block>();
  block->number = number;
  block->examples.Reset(dense_columns());
  CAPSTAN_RETURN_IF_ERROR(reader_->Append(ranges_[number], &block->examples));
  const int64_t expected = begins_[number + 1] - begins_[number];
  if (block->examples.count() != expected) {
    return absl::DataLossError(
        absl::StrCat(ranges_[number].path, ": the block at byte ", ranges_[number].begin, " has ",
                     block->examples.count(), " examples, expected ", expected,
                     " as when the job was submitted: files may not change while it runs"));
  }
  blocks_[0] = std::move(block);
  return blocks_[0].get();
}

absl::Status BlockExamples::Append(const Range& numbers, ExampleBatch* batch) {
  return ForEachPart(begins_, numbers, [&](size_t block, int64_t begin, int64_t end) {
    CAPSTAN_ASSIGN_OR_RETURN(const Block* const read, ReadBlock(block));
    batch->Append(read->examples, begin, end);
    return absl::OkStatus();
  });
}

const BlockExamples::Order& BlockExamples::OrderOf(uint64_t key) {
  if (order_ != nullptr && order_->key == key) return *order_;
  order_ = std::make_unique<Order>();
  order_->key = key;
  order_->blocks = MakePermutation(key, static_cast<int64_t>(ranges_.size()));
  std::vector<int64_t> counts;
  for (const uint32_t block : order_->blocks) counts.push_back(begins_[block + 1] - begins_[block]);
  order_->begins = BeginsOf(counts);
  return *order_;
}

absl::Status BlockExamples::AppendShuffled(uint64_t key, const Range& positions,
                                           ExampleBatch* batch) {
  const Order& order = OrderOf(key);
  return ForEachPart(order.begins, positions, [&](size_t part, int64_t begin, int64_t end) {
    CAPSTAN_ASSIGN_OR_RETURN(Block* const block, ReadBlock(order.blocks[part]));
    if (block->order.empty() || block->order_key != key) {
      block->order = MakePermutation(MixKey(key, block->number), block->examples.count());
      block->order_key = key;
    }
    for (int64_t i = begin; i < end; ++i) {
      const int64_t number = block->order[static_cast<size_t>(i)];
      batch->Append(block->examples, number, number + 1);
    }
    return absl::OkStatus();
  });
}

}  // namespace capstan
