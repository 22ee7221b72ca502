#include "tests/simulation/mutants.h"

#include <catch2/catch.hpp>

namespace capstan::sim::mutants_test {
namespace {

TEST_CASE("Mutants: a planted bug is caught by the checker that it was meant for", "[simulation]") {
  CHECK(RunMutants({.seeds_max = 400, .jobs = 2}) == 0);
}

}  // namespace
}  // namespace capstan::sim::mutants_test
