#include "common/examples/sets/example_set.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/examples/files/file_ranges.h"
#include "common/examples/sets/block_examples.h"
#include "common/examples/sets/parser_of_job.h"
#include "common/examples/sets/range_reader.h"
#include "common/random/permutation.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr int64_t kDefaultMemoryMib = 1024;
constexpr int64_t kStoredMax = (int64_t{1} << 32) - 1;  // The most that a permutation can order.

class StoredExamples final : public ExampleSet {
 public:
  StoredExamples(ExampleBatch examples, int32_t field_count)
      : examples_(std::move(examples)), field_count_(field_count) {}

  int64_t count() const override { return examples_.count(); }
  int64_t dense_columns() const override { return examples_.dense_columns(); }
  int32_t field_count() const override { return field_count_; }

  absl::Status Append(const Range& numbers, ExampleBatch* batch) override {
    batch->Append(examples_, numbers.begin, numbers.end);
    return absl::OkStatus();
  }

  absl::Status AppendShuffled(uint64_t key, const Range& positions, ExampleBatch* batch) override {
    if (order_.empty() || order_key_ != key) {
      order_ = MakePermutation(key, count());
      order_key_ = key;
    }
    for (int64_t p = positions.begin; p < positions.end; ++p) {
      const int64_t number = order_[static_cast<size_t>(p)];
      batch->Append(examples_, number, number + 1);
    }
    return absl::OkStatus();
  }

 private:
  const ExampleBatch examples_;
  const int32_t field_count_;
  uint64_t order_key_ = 0;
  std::vector<uint32_t> order_;  // The order for order_key_; empty if there is none yet.
};

class ClickLogExamples final : public ExampleSet {
 public:
  ClickLogExamples(ClickLog log, const v1::ClickLog& spec, const v1::Split& split)
      : log_(std::move(log)),
        dense_columns_(spec.dense_columns()),
        first_(static_cast<uint64_t>(split.first_example())),
        count_(split.examples()) {}

  int64_t count() const override { return count_; }
  int64_t dense_columns() const override { return dense_columns_; }
  int32_t field_count() const override { return log_.fields(); }

  absl::Status Append(const Range& numbers, ExampleBatch* batch) override {
    log_.Append(first_ + static_cast<uint64_t>(numbers.begin),
                first_ + static_cast<uint64_t>(numbers.end), batch, nullptr);
    return absl::OkStatus();
  }
  absl::Status AppendShuffled(uint64_t, const Range& positions, ExampleBatch* batch) override {
    return Append(positions, batch);
  }

 private:
  const ClickLog log_;
  const int64_t dense_columns_;
  const uint64_t first_;
  const int64_t count_;
};

absl::StatusOr<std::unique_ptr<RangeReader>> MakeReader(v1::Data data, const v1::Split& split,
                                                        double max_bad_fraction,
                                                        const Progress& progress = nullptr) {
  if (split.has_header()) data.mutable_columns()->set_header(split.header());
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<LineParser> parser, MakeLineParser(data));
  return std::make_unique<RangeReader>(std::move(parser), max_bad_fraction, progress);
}

absl::StatusOr<std::vector<FileRange>> RangesOf(const v1::Split& split) {
  const std::vector<std::string> patterns(split.files().begin(), split.files().end());
  return ListRanges(patterns, kBlockBytes);
}

// Returns whether the files are held in memory.
bool AreStored(const v1::Data& data, const std::vector<FileRange>& ranges) {
  const v1::Examples& examples = data.examples();
  const int64_t mib = examples.has_memory_mib() ? examples.memory_mib() : kDefaultMemoryMib;
  int64_t bytes = 0;
  for (const FileRange& range : ranges) bytes += range.end - range.begin;
  return bytes <= mib << 20;
}

absl::Status NoExample(const std::vector<FileRange>& ranges) {
  const bool one = ranges.back().path == ranges[0].path;
  return absl::InvalidArgumentError(absl::StrCat(
      ranges[0].path, ": no example in ", one ? "it" : "all files", ", expected at least one"));
}

// Checks that a split in memory has as many examples as were counted, if they were: otherwise the
// order of an epoch would be another one.
absl::Status CheckCount(const std::vector<FileRange>& ranges, const v1::Split& split,
                        int64_t count) {
  const auto& counted = split.block_examples();
  if (counted.empty() || (counted.size() == 1 && counted[0] == count)) return absl::OkStatus();
  const int64_t sum = std::accumulate(counted.begin(), counted.end(), int64_t{0});
  return absl::DataLossError(
      absl::StrCat(ranges[0].path, ": ", count, " examples in memory, where ", sum, " in ",
                   counted.size(), counted.size() == 1 ? " block" : " blocks", " were counted"));
}

absl::StatusOr<std::unique_ptr<ExampleSet>> ReadAll(const std::vector<FileRange>& ranges,
                                                    const v1::Split& split, RangeReader& reader) {
  ExampleBatch all(reader.dense_columns());
  for (const FileRange& range : ranges) CAPSTAN_RETURN_IF_ERROR(reader.Append(range, &all));
  CAPSTAN_RETURN_IF_ERROR(reader.Finish());
  if (all.count() == 0) return NoExample(ranges);
  if (all.count() > kStoredMax) {
    return absl::InvalidArgumentError(absl::StrCat(ranges[0].path, ": ", all.count(),
                                                   " examples, expected at most ", kStoredMax,
                                                   " in memory (data.examples.memory_mib)"));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckCount(ranges, split, all.count()));
  return std::make_unique<StoredExamples>(std::move(all), reader.field_count());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExampleSet>> ExampleSet::Open(const v1::Data& data,
                                                             const v1::Split& split,
                                                             const Progress& progress) {
  if (data.format() == v1::Data::CLICK_LOG) {
    CAPSTAN_ASSIGN_OR_RETURN(ClickLog log, MakeClickLog(data.click_log()));
    return std::make_unique<ClickLogExamples>(std::move(log), data.click_log(), split);
  }
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<FileRange> ranges, RangesOf(split));
  if (AreStored(data, ranges)) {
    CAPSTAN_ASSIGN_OR_RETURN(const auto reader,
                             MakeReader(data, split, data.examples().max_bad_fraction(), progress));
    return ReadAll(ranges, split, *reader);
  }
  // CountBlocks has checked the share of malformed lines.
  CAPSTAN_ASSIGN_OR_RETURN(auto reader, MakeReader(data, split, /*max_bad_fraction=*/1));
  const std::vector<int64_t> counts(split.block_examples().begin(), split.block_examples().end());
  return BlockExamples::Make(std::move(reader), std::move(ranges), counts);
}

absl::StatusOr<std::vector<int64_t>> CountBlocks(const v1::Data& data, const v1::Split& split) {
  std::vector<int64_t> counts;
  if (data.format() == v1::Data::CLICK_LOG) return counts;
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<FileRange> ranges, RangesOf(split));
  if (AreStored(data, ranges)) return counts;
  CAPSTAN_ASSIGN_OR_RETURN(const auto reader,
                           MakeReader(data, split, data.examples().max_bad_fraction()));
  ExampleBatch block(reader->dense_columns());
  for (const FileRange& range : ranges) {
    block.Clear();
    CAPSTAN_RETURN_IF_ERROR(reader->Append(range, &block));
    counts.push_back(block.count());
  }
  CAPSTAN_RETURN_IF_ERROR(reader->Finish());
  if (std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count == 0; })) {
    return NoExample(ranges);
  }
  return counts;
}

}  // namespace capstan
