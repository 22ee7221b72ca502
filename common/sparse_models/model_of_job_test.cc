#include "common/sparse_models/model_of_job.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/data/testing/test_files.h"
#include "common/examples/testing/example_files.h"
#include "common/model/tables.h"
#include "common/testing/status_matchers.h"

namespace capstan::model_of_job_test {
namespace {

v1::SparseModel Parse(const std::string& text) {
  v1::SparseModel spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  return spec;
}

// Three fields and two dense columns.
std::unique_ptr<ExampleSet> Clicks() {
  v1::Data data;
  data.set_format(v1::Data::CLICK_LOG);
  data.mutable_click_log()->set_fields(3);
  data.mutable_click_log()->set_dense_columns(2);
  v1::Split split;
  split.set_examples(10);
  REQUIRE_OK_AND_ASSIGN(auto set, ExampleSet::Open(data, split));
  return set;
}

SparseShape ShapeOf(const std::string& spec, ExampleSet& set) {
  REQUIRE_OK_AND_ASSIGN(const auto model, MakeSparseModel(Parse(spec), set));
  return model->shape();
}

TEST_CASE("Model of a job: each has the shape of its examples", "[sparse_models]") {
  const auto set = Clicks();
  const SparseShape linear = ShapeOf("logistic_regression { bias: 2 }", *set);
  CHECK(linear.row_dim == 1);
  CHECK(linear.dense_count == 1 + 2);
  CHECK(linear.dense[0].initial.value == 2.0f);
  CHECK(ShapeOf("factorization_machine { rank: 4 loss: SQUARED }", *set).loss ==
        SparseLoss::kSquared);
  CHECK(ShapeOf("factorization_machine { rank: 4 factor_std: 0.5 }", *set).row_initial.value ==
        0.5f);
  // z's 3, then 3 * 4 + 2 inputs to 5 units to 1.
  CHECK(ShapeOf("deep_fm { rank: 4 hidden: 5 }", *set).dense_count == 3 + 14 * 5 + 5 + 5 + 1);
  CHECK(ShapeOf("wide_and_deep { rank: 4 hidden: 5 }", *set).row_dim == 5);
  // Bottom 2 to 4; top: 4 and 6 dots of 4 vectors to 1.
  CHECK(ShapeOf("dlrm { dim: 4 }", *set).dense_count == 2 * 4 + 4 + 10 + 1);
}

TEST_CASE("Model of a job: one that the examples do not fit is refused", "[sparse_models]") {
  const auto set = Clicks();
  CHECK_STATUS(MakeSparseModel(Parse("matrix_factorization { rank: 2 }"), *set),
               absl::StatusCode::kInvalidArgument, "3 fields and 2 dense columns, expected 2");
  CHECK_STATUS(MakeSparseModel(Parse(""), *set), absl::StatusCode::kInvalidArgument,
               "no kind of model");
}

TEST_CASE("Model of a job: skip-gram draws negatives from the words of its text",
          "[sparse_models]") {
  testing::TemporaryFolder folder;
  folder.Write("t", testing::ToBytes("a b a\nb b\n"));
  v1::Data data;
  data.set_format(v1::Data::TEXT);
  v1::Split split;
  split.add_files(folder.Path("t"));
  std::string told;
  const auto listen = [&told](const std::string& what, int64_t more) {
    absl::StrAppend(&told, more, " ", what, "; ");
  };
  REQUIRE_OK_AND_ASSIGN(const auto set, ExampleSet::Open(data, split, listen));
  REQUIRE_OK_AND_ASSIGN(const auto model,
                        MakeSparseModel(Parse("skip_gram { dim: 7 }"), *set, listen));
  CHECK(told == "2 examples read; 2 examples gone through; ");
  CHECK(model->shape().row_dim == 7);
  CHECK(model->shape().dense_count == 0);
  CHECK(MakeSparseTables({}, model->shape()).size() == 1);
  ExampleBatch batch;
  REQUIRE_OK(set->Append({0, 2}, &batch));
  std::vector<uint64_t> keys;
  REQUIRE_OK(model->AppendKeys(batch, {}, &keys));
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  CHECK(keys.size() == 4);  // Two words, each with an input and an output row.
}

TEST_CASE("Model of a job: its tables are what servers accept", "[sparse_models]") {
  const auto set = Clicks();
  const std::string text =
      "factorization_machine { rank: 4 } buckets: 6 "
      "rows { admit_after: 2 admit_probability: 0.5 rows_max: 9 }";
  const auto tables = MakeSparseTables(Parse(text), ShapeOf(text, *set));
  REQUIRE(tables.size() == 2);
  CHECK(tables[kRowsTable].elements() == 6);
  CHECK(tables[kRowsTable].sparse().dim() == 5);
  CHECK(tables[kRowsTable].sparse().zero_columns() == 1);
  CHECK(tables[kRowsTable].sparse().admit_after() == 2);
  CHECK(tables[kRowsTable].sparse().admit_probability() == 0.5f);
  CHECK(tables[kRowsTable].sparse().rows_max() == 9);
  CHECK(tables[kDenseTable].elements() == 3);
  for (const v1::TableSpec& table : tables) REQUIRE_OK(ValidateTable(table));
  CHECK(BucketsOf(Parse("")) == 64);
}

}  // namespace
}  // namespace capstan::model_of_job_test
