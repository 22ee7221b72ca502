#include "tests/simulation/mutants.h"

#include <catch2/catch.hpp>

namespace capstan::sim {
namespace {

TEST_CASE("Mutants: the simulation catches every planted bug", "[simulation]") {
  CHECK(RunMutants({.first_seed = 1, .seeds_max = 300, .jobs = 2, .only = ""}) == 0);
}

}  // namespace
}  // namespace capstan::sim
