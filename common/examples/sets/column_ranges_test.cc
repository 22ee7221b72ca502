#include "common/examples/sets/column_ranges.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace capstan::column_ranges_test {
namespace {

v1::Columns Parse(const std::string& text) {
  v1::Columns columns;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &columns));
  return columns;
}

// Which of `columns` each column of a line is; -1: none.
std::vector<int> Indices(const std::string& text) {
  const v1::Columns columns = Parse(text);
  std::vector<const v1::Column*> line;
  REQUIRE_FALSE(ColumnsOfLine(columns, &line).has_value());
  std::vector<int> indices;
  for (const v1::Column* column : line) {
    int index = -1;
    for (int i = 0; i < columns.columns_size(); ++i) {
      if (column == &columns.columns(i)) index = i;
    }
    indices.push_back(index);
  }
  return indices;
}

ColumnRangeError ErrorOf(const std::string& text) {
  const v1::Columns columns = Parse(text);
  std::vector<const v1::Column*> line;
  const auto error = ColumnsOfLine(columns, &line);
  REQUIRE(error.has_value());
  return *error;
}

TEST_CASE("Column ranges: without any the columns stand in order", "[common][examples]") {
  CHECK(Indices("columns {} columns { kind: DENSE } columns {}") == std::vector<int>{0, 1, 2});
  CHECK(Indices("").empty());
}

TEST_CASE("Column ranges: they may stand in any order, with gaps", "[common][examples]") {
  CHECK(Indices("columns { range: '6' } columns { range: '2-4' }") ==
        std::vector<int>{-1, 1, 1, 1, -1, 0});
  CHECK(Indices("columns { range: '1' name: 'x' }") == std::vector<int>{0});
}

TEST_CASE("Column ranges: what is no range is named", "[common][examples]") {
  for (const char* const wrong :
       {"0", "0-3", "5-4", "4-", "-4", "a", "1-b", "1-2-3", "1-1048577", "99999999999"}) {
    CAPTURE(wrong);
    const ColumnRangeError error =
        ErrorOf("columns { range: '1' } columns { range: '" + std::string(wrong) + "' }");
    CHECK(error.index == 1);
    CHECK(error.found == "\"" + std::string(wrong) + "\"");
    CHECK(error.expected.find("such as \"4-41\"") != std::string::npos);
  }
  const ColumnRangeError without = ErrorOf("columns { range: '1' } columns { kind: DENSE }");
  CHECK(without.index == 1);
  CHECK(without.found == "nothing");
}

TEST_CASE("Column ranges: a column is one thing", "[common][examples]") {
  const ColumnRangeError twice = ErrorOf("columns { range: '2-5' } columns { range: '5-7' }");
  CHECK(twice.index == 1);
  CHECK(twice.expected == "columns of no other range: column 5 is in \"2-5\", too");
  const ColumnRangeError named = ErrorOf("columns { range: '2-5' name: 'age' }");
  CHECK(named.expected == "one column, as its name is \"age\"");
}

}  // namespace
}  // namespace capstan::column_ranges_test
