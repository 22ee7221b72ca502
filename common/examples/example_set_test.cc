#include "common/examples/example_set.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/data/test_files.h"
#include "common/examples/example_files.h"
#include "common/testing/status_matchers.h"

namespace capstan {
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

std::vector<float> Labels(const ExampleSet& set, const Range& range) {
  ExampleBatch batch(set.dense_columns());
  set.Append(range, &batch);
  return {batch.labels().begin(), batch.labels().end()};
}

TEST_CASE("Example set: all examples of all files, by number", "[examples]") {
  TemporaryFolder folder;
  folder.Write("b.svm", ToBytes("3 7:1\n4 8:1 9:2\n"));
  folder.Write("a.svm", ToBytes("# none here\n1 5:1\n\n2 6:1\n"));
  REQUIRE_OK_AND_ASSIGN(const auto set,
                        ExampleSet::Open(Parse("format: SVMLIGHT"), Files({folder.Path("*.svm")})));
  CHECK(set->count() == 4);
  CHECK_FALSE(set->random());
  CHECK(Labels(*set, {0, 4}) == std::vector<float>{1, 2, 3, 4});
  CHECK(Labels(*set, {1, 3}) == std::vector<float>{2, 3});
  CHECK(Labels(*set, {2, 2}).empty());
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

TEST_CASE("Example set: a click log is made where it is asked for", "[examples]") {
  const v1::Data data = Parse("format: CLICK_LOG click_log { fields: 4 dense_columns: 2 }");
  v1::Split all, later;
  all.set_examples(100);
  later.set_first_example(60);
  later.set_examples(int64_t{1} << 40);
  REQUIRE_OK_AND_ASSIGN(const auto log, ExampleSet::Open(data, all));
  REQUIRE_OK_AND_ASSIGN(const auto rest, ExampleSet::Open(data, later));
  CHECK(log->random());
  CHECK(rest->count() == int64_t{1} << 40);
  CHECK(rest->field_count() == 4);
  ExampleBatch from_all(2), from_rest(2);
  log->Append({60, 70}, &from_all);
  rest->Append({0, 10}, &from_rest);
  CHECK(from_all.keys() == from_rest.keys());
  CHECK(from_all.labels() == from_rest.labels());
  CHECK_STATUS(ExampleSet::Open(Parse("format: CLICK_LOG click_log { fields: 0 }"), all),
               absl::StatusCode::kInvalidArgument, "data.click_log: ");
}

}  // namespace
}  // namespace capstan
