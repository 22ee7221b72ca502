#include "common/examples/parsers/delimited.h"

#include <catch2/catch.hpp>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::delimited_test {
namespace {

using Columns = std::vector<std::string>;

absl::StatusOr<Columns> Split(absl::string_view text, char separator = ',', bool quotes = true) {
  std::string scratch;
  DelimitedLine line(text, separator, quotes, &scratch);
  Columns columns;
  while (true) {
    absl::string_view column;
    const absl::StatusOr<bool> more = line.Next(&column);
    if (!more.ok()) return more.status();
    if (!*more) return columns;
    columns.emplace_back(column);
    CHECK(line.taken() == static_cast<int64_t>(columns.size()));
  }
}

Columns ColumnsOf(absl::string_view text, char separator = ',', bool quotes = true) {
  const absl::StatusOr<Columns> columns = Split(text, separator, quotes);
  INFO(std::string(text));
  REQUIRE_OK(columns);
  return *columns;
}

TEST_CASE("Delimited: separators stand between columns", "[common][examples]") {
  CHECK(ColumnsOf("a,b c,,d") == Columns{"a", "b c", "", "d"});
  CHECK(ColumnsOf("") == Columns{""});
  CHECK(ColumnsOf(",") == Columns{"", ""});
  CHECK(ColumnsOf("a,") == Columns{"a", ""});
  CHECK(ColumnsOf("a\tb,c", '\t') == Columns{"a", "b,c"});
}

TEST_CASE("Delimited: quotes as in RFC 4180", "[common][examples]") {
  CHECK(ColumnsOf(R"("aaa","b,bb",ccc)") == Columns{"aaa", "b,bb", "ccc"});
  CHECK(ColumnsOf(R"("a ""b"" c",d)") == Columns{R"(a "b" c)", "d"});
  CHECK(ColumnsOf(R"("")") == Columns{""});
  CHECK(ColumnsOf(R"("",)") == Columns{"", ""});
  CHECK(ColumnsOf(R"("""")") == Columns{R"(")"});
  CHECK(ColumnsOf(R"("""""","""a")") == Columns{R"("")", R"("a)"});
}

TEST_CASE("Delimited: without quotes a quote is a character", "[common][examples]") {
  CHECK(ColumnsOf("\"a\tb\"\"", '\t', /*quotes=*/false) == Columns{"\"a", "b\"\""});
}

TEST_CASE("Delimited: wrong quotes are refused by place", "[common][examples]") {
  const auto code = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(Split(R"(a,"bc)"), code, "column 2, byte 3: the quote is not closed");
  CHECK_STATUS(Split(R"(")"), code, "column 1, byte 1: the quote is not closed");
  CHECK_STATUS(Split(R"("a"")"), code, "column 1, byte 1: the quote is not closed");
  CHECK_STATUS(Split(R"("a"b,c)"), code,
               "column 1, byte 4: text behind the closing quote, expected a separator");
  CHECK_STATUS(Split(R"(a,b"c")"), code, "column 2, byte 4: a quote in an unquoted column");
}

}  // namespace
}  // namespace capstan::delimited_test
