// BlockExamples: an ExampleSet of files that are too large to be held in memory.
//
// A block is a range of a file (FileRange), of about 1 MiB, or a compressed file. The order that
// follows from a key permutes the blocks, and the examples within each block. Neighbours in this
// order therefore lie in one block, which is parsed once for all of them. The two blocks that were
// read last are kept.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_SETS_BLOCK_EXAMPLES_H_
#define CAPSTAN_COMMON_EXAMPLES_SETS_BLOCK_EXAMPLES_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/examples/files/file_ranges.h"
#include "common/examples/sets/example_set.h"
#include "common/examples/sets/range_reader.h"

namespace capstan {

inline constexpr int64_t kBlockBytes = 1 << 20;

class BlockExamples final : public ExampleSet {
 public:
  // `counts`: examples of each range.
  // Errors: kDataLoss  the numbers of ranges and counts differ; no example at all.
  static absl::StatusOr<std::unique_ptr<ExampleSet>> Make(std::unique_ptr<RangeReader> reader,
                                                          std::vector<FileRange> ranges,
                                                          const std::vector<int64_t>& counts);

  int64_t count() const override { return begins_.back(); }
  int64_t dense_columns() const override { return reader_->dense_columns(); }
  int32_t field_count() const override { return reader_->field_count(); }
  absl::Status Append(const Range& numbers, ExampleBatch* batch) override;
  absl::Status AppendShuffled(uint64_t key, const Range& positions, ExampleBatch* batch) override;

 private:
  struct Block {
    size_t number = 0;
    ExampleBatch examples;
    uint64_t order_key = 0;
    std::vector<uint32_t> order;  // Order of its examples; empty: none yet.
  };
  // The order of the blocks that follows from a key.
  struct Order {
    uint64_t key = 0;
    std::vector<uint32_t> blocks;
    std::vector<int64_t> begins;  // [blocks + 1]: positions.
  };

  BlockExamples(std::unique_ptr<RangeReader> reader, std::vector<FileRange> ranges,
                std::vector<int64_t> begins)
      : reader_(std::move(reader)), ranges_(std::move(ranges)), begins_(std::move(begins)) {}

  // Returns a block; reads it unless it is one of the two that are kept. The block is valid until
  // the next call but one.
  absl::StatusOr<Block*> ReadBlock(size_t number);
  const Order& OrderOf(uint64_t key);

  const std::unique_ptr<RangeReader> reader_;
  const std::vector<FileRange> ranges_;
  const std::vector<int64_t> begins_;             // [ranges + 1]: numbers of examples.
  std::array<std::unique_ptr<Block>, 2> blocks_;  // The block used last is the first.
  std::unique_ptr<Order> order_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_SETS_BLOCK_EXAMPLES_H_
