#include "tests/simulation/mutants.h"

#include <catch2/catch.hpp>

namespace capstan::sim {
namespace {

// Those that few seeds catch; `sim -- --mutants` runs all.
constexpr const char* kQuick[] = {
    "read-before-own-writes",
    "renumber-repeated-push",
    "forget-lease-progress",
    "lose-lease-of-the-dead",
    "return-whole-lease",
    "lose-partly-evaluated",
    "keep-dead-member",
    "lose-leases-on-restart",
    "skip-duplicate-filter",
    "read-current-for-previous",
    "release-barrier-early",
    "ignore-membership",
    "promote-stale-replica",
    "staleness-off-by-one",
    "drop-fsync",
    "install-without-optimizer-state",
    "install-without-row-life",
    "forget-changed-row",
    "take-in-old-body",
    "keep-stale-row",
    "forget-pinned-row",
    "read-present-for-pinned",
};

TEST_CASE("Mutants: the simulation catches planted bugs", "[simulation]") {
  for (const char* name : kQuick) {
    INFO(name);
    CHECK(RunMutants({.first_seed = 1, .seeds_max = 300, .jobs = 2, .only = name}) == 0);
  }
}

}  // namespace
}  // namespace capstan::sim
