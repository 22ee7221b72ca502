#include "tests/simulation/mutants.h"

#include <catch2/catch.hpp>

namespace capstan::sim {
namespace {

TEST_CASE("Mutants: the simulation catches planted bugs", "[simulation]") {
  CHECK(RunMutants({.first_seed = 1, .seeds_max = 300, .jobs = 2, .only = "", .rare = false}) == 0);
}

}  // namespace
}  // namespace capstan::sim
