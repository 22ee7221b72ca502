#include "scheduler/cli/view/text/text_table.h"

#include <catch2/catch.hpp>

namespace capstan::cli::text_table_test {
namespace {

TEST_CASE("TextTable: columns are as wide as their widest cell", "[cli]") {
  TextTable table({{"JOB"}, {"DONE", TextTable::Align::kRight}, {"DETAIL"}});
  CHECK(table.empty());
  table.AddRow({"lenet-1", "5 %", ""});
  table.AddRow({"a", "100 %", "waits"});
  CHECK(table.ToString() ==
        "JOB       DONE  DETAIL\n"
        "lenet-1    5 %  -\n"
        "a        100 %  waits\n");
}

TEST_CASE("TextTable: width counts characters, control characters are made harmless", "[cli]") {
  TextTable table({{"A"}, {"B"}});
  table.AddRow({"\u00e9\u00e9", "x"});
  table.AddRow({"a\x1b[b", "y\nz"});
  CHECK(table.ToString() ==
        "A          B\n"
        "\u00e9\u00e9         x\n"
        "a\\u001b[b  y z\n");
}

}  // namespace
}  // namespace capstan::cli::text_table_test
