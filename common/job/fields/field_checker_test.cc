#include "common/job/fields/field_checker.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace capstan::field_checker_test {
namespace {

TEST_CASE("FieldChecker: a million errors take the room of a hundred", "[job]") {
  std::vector<Diagnostic> diagnostics;
  FieldChecker check("list", &diagnostics);
  for (int i = 0; i < 1'000'000; ++i) {
    check.In(absl::StrCat("items[", i, "]")).Missing("name", "one");
    REQUIRE(diagnostics.size() <= kDiagnosticsMax);
    if (i == 99)
      CHECK(diagnostics.back().ToString() == "list.items[99].name: got nothing, expected one");
    if (i == 100) CHECK(diagnostics.back().ToString() == "and 2 more errors");
  }
  REQUIRE(diagnostics.size() == kDiagnosticsMax);
  CHECK(diagnostics[98].field == "list.items[98].name");
  CHECK(diagnostics[99].ToString() == "and 999901 more errors");
  CHECK(diagnostics[99].left_out == 999'901);
}

}  // namespace
}  // namespace capstan::field_checker_test
