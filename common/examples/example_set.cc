#include "common/examples/example_set.h"

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/examples/bad_lines.h"
#include "common/examples/example_source.h"
#include "common/examples/file_ranges.h"
#include "common/examples/parser_of_job.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr int64_t kRangeBytes = 256 << 20;
constexpr int64_t kExamplesAtOnce = 1024;

class StoredExamples final : public ExampleSet {
 public:
  StoredExamples(ExampleBatch examples, int32_t field_count)
      : ExampleSet(examples.count(), examples.dense_columns(), field_count, /*random=*/false),
        examples_(std::move(examples)) {}

  void Append(const Range& range, ExampleBatch* batch) const override {
    batch->Append(examples_, range.begin, range.end);
  }

 private:
  const ExampleBatch examples_;
};

class ClickLogExamples final : public ExampleSet {
 public:
  ClickLogExamples(ClickLog log, const v1::ClickLog& spec, const v1::Split& split)
      : ExampleSet(split.examples(), spec.dense_columns(), log.fields(), /*random=*/true),
        log_(std::move(log)),
        first_(static_cast<uint64_t>(split.first_example())) {}

  void Append(const Range& range, ExampleBatch* batch) const override {
    log_.Append(first_ + static_cast<uint64_t>(range.begin),
                first_ + static_cast<uint64_t>(range.end), batch, nullptr);
  }

 private:
  const ClickLog log_;
  const uint64_t first_;
};

int64_t BytesOf(const ExampleBatch& examples) {
  constexpr int64_t kFeature = sizeof(uint64_t) + sizeof(float) + sizeof(int32_t);
  constexpr int64_t kExample = sizeof(float) + sizeof(int64_t);
  return examples.value_count() * kFeature +
         examples.count() *
             (kExample + examples.dense_columns() * static_cast<int64_t>(sizeof(float)));
}

int64_t BytesMax() {
  return int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)} / 4 * 3;
}

absl::Status CheckSize(const std::string& path, const ExampleBatch& examples, int64_t bytes_max) {
  if (examples.count() > kExamplesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": more than ", kExamplesMax, " examples in a split"));
  }
  if (BytesOf(examples) <= bytes_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(path, ": the split's examples take more than ", bytes_max >> 20,
                   " MiB, 3/4 of the memory of this machine; expected fewer or smaller files"));
}

absl::StatusOr<ExampleBatch> ReadAll(const v1::Split& split, LineParser* parser,
                                     double max_bad_fraction) {
  const std::vector<std::string> patterns(split.files().begin(), split.files().end());
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<FileRange> ranges, ListRanges(patterns, kRangeBytes));
  const int64_t bytes_max = BytesMax();
  BadLines bad_lines(max_bad_fraction);
  ExampleBatch all(parser->dense_columns()), next(parser->dense_columns());
  for (const FileRange& range : ranges) {
    CAPSTAN_ASSIGN_OR_RETURN(const auto source, ExampleSource::Open(range, parser, &bad_lines, {}));
    for (;;) {
      CAPSTAN_RETURN_IF_ERROR(source->Next(kExamplesAtOnce, &next));
      if (next.count() == 0) break;
      all.Append(next, 0, next.count());
      CAPSTAN_RETURN_IF_ERROR(CheckSize(range.path, all, bytes_max));
    }
  }
  CAPSTAN_RETURN_IF_ERROR(bad_lines.Finish());
  if (all.count() > 0) return all;
  return absl::InvalidArgumentError(absl::StrCat(
      ranges[0].path, ": no example in ", ranges.back().path == ranges[0].path ? "it" : "all files",
      ", expected at least one"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExampleSet>> ExampleSet::Open(const v1::Data& data,
                                                             const v1::Split& split) {
  if (data.format() == v1::Data::CLICK_LOG) {
    CAPSTAN_ASSIGN_OR_RETURN(ClickLog log, MakeClickLog(data.click_log()));
    return std::make_unique<ClickLogExamples>(std::move(log), data.click_log(), split);
  }
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeLineParser(data));
  CAPSTAN_ASSIGN_OR_RETURN(ExampleBatch examples,
                           ReadAll(split, parser.get(), data.examples().max_bad_fraction()));
  return std::make_unique<StoredExamples>(std::move(examples), parser->field_count());
}

}  // namespace capstan
