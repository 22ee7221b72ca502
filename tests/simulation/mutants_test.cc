#include "tests/simulation/mutants.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/strings/string_view.h"

namespace capstan::sim {
namespace {

// Thousands of seeds show each of these once or not at all; `sim -- --mutants` hunts them, too.
const std::vector<absl::string_view>& Rare() {
  static const auto* const rare = new std::vector<absl::string_view>{
      "forget-fences",
      "keep-any-version",
      "read-while-handing-over",
  };
  return *rare;
}

TEST_CASE("Mutants: a planted bug is caught by the checker that it was meant for", "[simulation]") {
  CHECK(RunMutants({.seeds_max = 400, .jobs = 2, .except = Rare()}) == 0);
}

}  // namespace
}  // namespace capstan::sim
