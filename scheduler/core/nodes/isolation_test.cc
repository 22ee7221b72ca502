#include "scheduler/core/nodes/isolation.h"

#include <catch2/catch.hpp>

namespace capstan::scheduler::isolation_test {
namespace {

using Change = Isolation::Change;

Instant At(double seconds) { return Instant::FromOrigin(absl::Seconds(seconds)); }

TEST_CASE("Isolation: the silence of a minority is its own", "[scheduler][core]") {
  Isolation isolation({});
  CHECK(isolation.Observe({.alive = 4, .silent = 2, .expired = true}, At(1)) == Change::kNone);
  CHECK(isolation.Observe({.alive = 1, .silent = 1, .expired = true}, At(2)) == Change::kNone);
  CHECK(isolation.Observe({.alive = 2, .silent = 1, .expired = true}, At(3)) == Change::kNone);
  // Two servers may die at once while a worker lives.
  CHECK(isolation.Observe({.alive = 3, .silent = 2, .expired = true}, At(4)) == Change::kNone);
  CHECK_FALSE(isolation.holds());
}

TEST_CASE(
    "Isolation: it begins when a lease runs out and most are silent, and lasts until most are "
    "heard",
    "[scheduler][core]") {
  Isolation isolation({});
  CHECK(isolation.Observe({.alive = 4, .silent = 4, .expired = false}, At(1)) == Change::kNone);
  CHECK_FALSE(isolation.holds());
  CHECK(isolation.Observe({.alive = 4, .silent = 3, .expired = true}, At(2)) == Change::kBegan);
  CHECK(isolation.holds());
  CHECK(isolation.since() == At(2));
  CHECK(isolation.Observe({.alive = 4, .silent = 3, .expired = true}, At(3)) == Change::kNone);
  CHECK(isolation.Observe({.alive = 4, .silent = 2, .expired = true}, At(4)) == Change::kEnded);
  CHECK_FALSE(isolation.holds());
}

TEST_CASE("Isolation: who hears nobody waits for ever, who hears some has a limit",
          "[scheduler][core]") {
  Isolation isolation({.partial_limit = absl::Seconds(60)});
  CHECK(isolation.Observe({.alive = 4, .silent = 4, .expired = true}, At(0)) == Change::kBegan);
  CHECK(isolation.Observe({.alive = 4, .silent = 4, .expired = true}, At(1e6)) == Change::kNone);
  CHECK(isolation.Observe({.alive = 4, .silent = 3, .expired = true}, At(1e6 + 1)) ==
        Change::kNone);
  // The limit starts again when no node is heard in between.
  CHECK(isolation.Observe({.alive = 4, .silent = 4, .expired = true}, At(1e6 + 30)) ==
        Change::kNone);
  CHECK(isolation.Observe({.alive = 4, .silent = 3, .expired = true}, At(1e6 + 40)) ==
        Change::kNone);
  CHECK(isolation.Observe({.alive = 4, .silent = 3, .expired = true}, At(1e6 + 99)) ==
        Change::kNone);
  CHECK(isolation.Observe({.alive = 4, .silent = 3, .expired = true}, At(1e6 + 100)) ==
        Change::kGivenUp);
  CHECK_FALSE(isolation.holds());
}

}  // namespace
}  // namespace capstan::scheduler::isolation_test
