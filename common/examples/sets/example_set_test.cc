#include "common/examples/sets/example_set.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/data/testing/test_files.h"
#include "common/examples/testing/example_files.h"
#include "common/testing/status_matchers.h"

namespace capstan::example_set_test {
namespace {

using testing::TemporaryFolder;
using testing::ToBytes;

v1::Data Parse(const std::string& text) {
  v1::Data data;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &data));
  return data;
}

v1::Split Files(const std::vector<std::string>& paths) {
  v1::Split split;
  for (const std::string& path : paths) split.add_files(path);
  return split;
}

std::vector<float> Labels(ExampleSet& set, const Range& range) {
  ExampleBatch batch(set.dense_columns());
  REQUIRE_OK(set.Append(range, &batch));
  return {batch.labels().begin(), batch.labels().end()};
}

TEST_CASE("Example set: all examples of all files, by number", "[examples]") {
  TemporaryFolder folder;
  folder.Write("b.svm", ToBytes("3 7:1\n4 8:1 9:2\n"));
  folder.Write("a.svm", ToBytes("# none here\n1 5:1\n\n2 6:1\n"));
  REQUIRE_OK_AND_ASSIGN(const auto set,
                        ExampleSet::Open(Parse("format: SVMLIGHT"), Files({folder.Path("*.svm")})));
  CHECK(set->count() == 4);
  CHECK(Labels(*set, {0, 4}) == std::vector<float>{1, 2, 3, 4});
  CHECK(Labels(*set, {1, 3}) == std::vector<float>{2, 3});
  CHECK(Labels(*set, {2, 2}).empty());
}

TEST_CASE("Example set: a split may have a header of its own", "[examples]") {
  TemporaryFolder folder;
  folder.Write("a.csv", ToBytes("x,y\n1,2\n"));
  v1::Split split = Files({folder.Path("a.csv")});
  const auto data = [](const char* header) {
    return Parse(
        absl::StrCat("format: COLUMNS columns { columns { kind: DENSE name: 'x' } "
                     "columns { kind: LABEL name: 'y' } header: ",
                     header, " }"));
  };
  split.set_header(true);
  REQUIRE_OK_AND_ASSIGN(const auto with, ExampleSet::Open(data("false"), split));
  CHECK(with->count() == 1);
  split.set_header(false);
  CHECK_STATUS(ExampleSet::Open(data("true"), split), absl::StatusCode::kDataLoss, "column 1 (x)");
  split.clear_header();
  REQUIRE_OK(ExampleSet::Open(data("true"), split));
}

TEST_CASE("Example set: a format brings its columns and fields", "[examples]") {
  TemporaryFolder folder;
  folder.Write("a.tsv", ToBytes("x\t1.5\ty\t1\n"));
  const v1::Data data = Parse(R"pb(
    format: COLUMNS
    columns {
      columns { kind: CATEGORY }
      columns { kind: DENSE }
      columns { kind: ID }
      columns { kind: LABEL }
      separator: "\t"
    }
  )pb");
  CHECK_STATUS(ExampleSet::Open(data, Files({folder.Path("a.tsv")})), absl::StatusCode::kDataLoss,
               "a.tsv:1: column 3");
  folder.Write("a.tsv", ToBytes("x\t1.5\t77\t1\n"));
  REQUIRE_OK_AND_ASSIGN(const auto set, ExampleSet::Open(data, Files({folder.Path("a.tsv")})));
  CHECK(set->dense_columns() == 1);
  CHECK(set->field_count() == 2);
}

TEST_CASE("Example set: malformed lines are left out up to a share of them", "[examples]") {
  TemporaryFolder folder;
  folder.Write("a.svm", ToBytes("1 5:1\nnonsense\n2 6:1\n"));
  CHECK_STATUS(ExampleSet::Open(Parse("format: SVMLIGHT"), Files({folder.Path("a.svm")})),
               absl::StatusCode::kDataLoss, "a.svm:2: ");
  REQUIRE_OK_AND_ASSIGN(
      const auto set, ExampleSet::Open(Parse("format: SVMLIGHT examples { max_bad_fraction: 0.5 }"),
                                       Files({folder.Path("a.svm")})));
  CHECK(Labels(*set, {0, set->count()}) == std::vector<float>{1, 2});
}

TEST_CASE("Example set: a split without an example is refused", "[examples]") {
  TemporaryFolder folder;
  folder.Write("a.svm", ToBytes("# nothing\n"));
  CHECK_STATUS(ExampleSet::Open(Parse("format: SVMLIGHT"), Files({folder.Path("a.svm")})),
               absl::StatusCode::kInvalidArgument, "a.svm: no example in it");
}

// Returns the labels at these positions of the order of `key`.
std::vector<float> Shuffled(ExampleSet& set, uint64_t key, const Range& positions) {
  ExampleBatch batch(set.dense_columns());
  REQUIRE_OK(set.AppendShuffled(key, positions, &batch));
  return {batch.labels().begin(), batch.labels().end()};
}

std::vector<float> Sorted(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values;
}

// 40 files of 5 examples, labelled by their number.
v1::Split WriteFiles(TemporaryFolder& folder) {
  for (int f = 0; f < 40; ++f) {
    std::string text;
    for (int i = 0; i < 5; ++i) absl::StrAppend(&text, f * 5 + i, " 7:1\n");
    folder.Write(absl::StrFormat("%02d.svm", f), ToBytes(text));
  }
  return Files({folder.Path("*.svm")});
}

TEST_CASE("Example set: every order holds each example once, in memory and in blocks",
          "[examples]") {
  TemporaryFolder folder;
  v1::Split split = WriteFiles(folder);
  v1::Data data = Parse("format: SVMLIGHT");
  SECTION("in memory") {
    REQUIRE_OK_AND_ASSIGN(const std::vector<int64_t> blocks, CountBlocks(data, split));
    CHECK(blocks.empty());
  }
  SECTION("in blocks") {
    data.mutable_examples()->set_memory_mib(0);
    REQUIRE_OK_AND_ASSIGN(const std::vector<int64_t> blocks, CountBlocks(data, split));
    CHECK(blocks == std::vector<int64_t>(40, 5));
    split.mutable_block_examples()->Assign(blocks.begin(), blocks.end());
  }
  REQUIRE_OK_AND_ASSIGN(const auto set, ExampleSet::Open(data, split));
  REQUIRE(set->count() == 200);
  std::vector<float> all(200);
  std::iota(all.begin(), all.end(), 0.0f);
  CHECK(Labels(*set, {0, 200}) == all);
  CHECK(Labels(*set, {3, 12}) == std::vector<float>(all.begin() + 3, all.begin() + 12));
  const std::vector<float> order = Shuffled(*set, 1, {0, 200});
  CHECK(order != all);
  CHECK(Sorted(order) == all);
  CHECK(Shuffled(*set, 2, {0, 200}) != order);
  // However it is asked for.
  std::vector<float> parts;
  for (const Range part : {Range{0, 7}, Range{7, 7}, Range{7, 100}, Range{100, 200}}) {
    for (const float label : Shuffled(*set, 1, part)) parts.push_back(label);
  }
  CHECK(parts == order);
}

TEST_CASE("Example set: neighbours in an order of blocks lie in one block", "[examples]") {
  TemporaryFolder folder;
  v1::Split split = WriteFiles(folder);
  const v1::Data data = Parse("format: SVMLIGHT examples { memory_mib: 0 }");
  for (int i = 0; i < 40; ++i) split.add_block_examples(5);
  REQUIRE_OK_AND_ASSIGN(const auto set, ExampleSet::Open(data, split));
  const std::vector<float> order = Shuffled(*set, 1, {0, 200});
  for (size_t i = 0; i < 200; ++i) {
    CHECK(static_cast<int>(order[i]) / 5 == static_cast<int>(order[i / 5 * 5]) / 5);
  }
}

TEST_CASE("Example set: files that have changed since they were counted are named", "[examples]") {
  TemporaryFolder folder;
  v1::Split split = WriteFiles(folder);
  const v1::Data data = Parse("format: SVMLIGHT examples { memory_mib: 0 }");
  for (int i = 0; i < 39; ++i) split.add_block_examples(5);
  CHECK_STATUS(ExampleSet::Open(data, split), absl::StatusCode::kDataLoss,
               "the files have 40 blocks, of which 39 were counted with 195 examples");
  split.add_block_examples(5);
  REQUIRE_OK_AND_ASSIGN(const auto set, ExampleSet::Open(data, split));
  folder.Write("02.svm", ToBytes("1 7:1\n2 7:1\n"));
  ExampleBatch batch;
  CHECK_STATUS(set->Append({12, 14}, &batch), absl::StatusCode::kDataLoss, "02.svm");
}

TEST_CASE("Example set: in memory too, files that have changed since they were counted are named",
          "[examples]") {
  TemporaryFolder folder;
  v1::Split split = WriteFiles(folder);
  const v1::Data data = Parse("format: SVMLIGHT");
  split.add_block_examples(200);
  REQUIRE_OK(ExampleSet::Open(data, split).status());
  folder.Write("02.svm", ToBytes("1 7:1\n2 7:1\n"));
  CHECK_STATUS(ExampleSet::Open(data, split), absl::StatusCode::kDataLoss,
               "00.svm: 197 examples in memory, where 200 in 1 block were counted");
  split.set_block_examples(0, 97);
  split.add_block_examples(100);
  CHECK_STATUS(ExampleSet::Open(data, split), absl::StatusCode::kDataLoss,
               "00.svm: 197 examples in memory, where 197 in 2 blocks were counted");
}

TEST_CASE("Example set: a click log is made where it is asked for", "[examples]") {
  const v1::Data data = Parse("format: CLICK_LOG click_log { fields: 4 dense_columns: 2 }");
  v1::Split all, later;
  all.set_examples(100);
  later.set_first_example(60);
  later.set_examples(int64_t{1} << 40);
  REQUIRE_OK_AND_ASSIGN(const auto log, ExampleSet::Open(data, all));
  REQUIRE_OK_AND_ASSIGN(const auto rest, ExampleSet::Open(data, later));
  CHECK(rest->count() == int64_t{1} << 40);
  CHECK(rest->field_count() == 4);
  ExampleBatch from_all(2), from_rest(2);
  REQUIRE_OK(log->Append({60, 70}, &from_all));
  REQUIRE_OK(rest->AppendShuffled(7, {0, 10}, &from_rest));  // Random already.
  CHECK(from_all.keys() == from_rest.keys());
  CHECK(from_all.labels() == from_rest.labels());
  CHECK_STATUS(ExampleSet::Open(Parse("format: CLICK_LOG click_log { fields: 0 }"), all),
               absl::StatusCode::kInvalidArgument, "data.click_log: ");
}

}  // namespace
}  // namespace capstan::example_set_test
