#include "scheduler/cli/init/table_sample.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace capstan::cli::table_sample_test {
namespace {

TableSample Sample(const std::vector<std::string>& lines) {
  REQUIRE_OK_AND_ASSIGN(TableSample sample, SampleTable(lines));
  return sample;
}

TEST_CASE("Table sample: the separator cuts all lines alike", "[cli]") {
  CHECK(Sample({"a,b;c", "1,2;3"}).separator == ',');
  CHECK(Sample({"a\tb,c\td", "1\t2\t3"}).separator == '\t');
  CHECK(Sample({"1;2,5;3", "4;5;6"}).separator == ';');
  CHECK(Sample({"\"a,b\",c", "d,e"}).columns.size() == 2);
  // Two separators fit; the one with more columns counts.
  CHECK(Sample({"1,2 |3,4", "5,6 |7,8"}).columns.size() == 3);
  CHECK_STATUS(SampleTable({"a,b", "c"}), absl::StatusCode::kInvalidArgument,
               "found no separator that cuts its first 2 lines into the same number of columns, "
               "two at least: ',' gives 1 to 2");
  CHECK_STATUS(SampleTable({}), absl::StatusCode::kInvalidArgument, "has no line");
}

TEST_CASE("Table sample: a header has text where lines have numbers, or stands alone", "[cli]") {
  CHECK(Sample({"age,town", "17,Oslo", "18,Bern"}).header);
  CHECK(Sample({"age,town", "17,Oslo", ",Bern"}).header);
  CHECK_FALSE(Sample({"17,Oslo", "18,Bern"}).header);
  CHECK(Sample({"name,town", "anna,Oslo", "bert,Bern"}).header);
  CHECK_FALSE(Sample({"anna,Oslo", "anna,Bern"}).header);
  CHECK_FALSE(Sample({"x,y"}).header);
  CHECK(Sample({"age,town", "17,Oslo"}).columns[1].name == "town");
  CHECK(Sample({"17,Oslo", "18,Bern"}).columns[1].name.empty());
}

TEST_CASE("Table sample: columns are counted", "[cli]") {
  const TableSample sample = Sample({"n,t", "1,a", "3,b", ",a", "5,7"});
  REQUIRE(sample.rows == 4);
  const ColumnSample& number = sample.columns[0];
  CHECK(number.numeric());
  CHECK(number.numbers == 3);
  CHECK(number.empty == 1);
  CHECK(number.mean == Approx(3));
  CHECK(number.deviation == Approx(std::sqrt(8.0 / 3)));
  CHECK(number.least == 1);
  CHECK(number.largest == 5);
  const ColumnSample& text = sample.columns[1];
  CHECK_FALSE(text.numeric());
  CHECK(text.texts == 3);
  CHECK(text.values.at("a") == 2);
  CHECK_FALSE(text.constant());
  CHECK(Sample({"1,a", "2,a"}).columns[1].constant());
}

TEST_CASE("Table sample: values beyond a limit are not kept", "[cli]") {
  std::vector<std::string> lines;
  for (int i = 0; i < 1500; ++i) lines.push_back(absl::StrCat(i, ",x"));
  CHECK(Sample(lines).columns[0].values.size() == ColumnSample::kValuesMax);
  CHECK(Sample(lines).columns[0].numbers == 1500);
}

}  // namespace
}  // namespace capstan::cli::table_sample_test
