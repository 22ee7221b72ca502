#include "server/optimizer/plugin/plugin_rules.h"

#include <catch2/catch.hpp>

#include "common/testing/status_matchers.h"

namespace capstan::server::plugin_rules_test {
namespace {

constexpr CapstanRule kFirst{.name = "first"};
constexpr CapstanRule kSecond{.name = "second"};

TEST_CASE("Plugin rules: each is found by its name", "[server][optimizer]") {
  PluginRules rules;
  CHECK(rules.Names() == "none");
  CHECK(rules.Find("first") == nullptr);
  REQUIRE_OK(rules.Add({.rule = &kSecond, .digest = "2", .file = "b.so"}));
  REQUIRE_OK(rules.Add({.rule = &kFirst, .digest = "1", .file = "a.so"}));
  CHECK(rules.Names() == "first, second");
  CHECK(rules.Find("first")->rule == &kFirst);
  CHECK(rules.Find("second")->digest == "2");
}

TEST_CASE("Plugin rules: a second rule of a name is refused with both files",
          "[server][optimizer]") {
  PluginRules rules;
  REQUIRE_OK(rules.Add({.rule = &kFirst, .digest = "1", .file = "a.so"}));
  CHECK_STATUS(rules.Add({.rule = &kFirst, .digest = "2", .file = "b.so"}),
               absl::StatusCode::kInvalidArgument,
               "rule first of b.so: a.so has a rule of that name, expected another name");
  CHECK(rules.Find("first")->digest == "1");
}

}  // namespace
}  // namespace capstan::server::plugin_rules_test
