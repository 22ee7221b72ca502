#include "server/core/pulled_versions.h"

#include <catch2/catch.hpp>
#include <set>
#include <variant>

namespace capstan::server::pulled_versions_test {
namespace {

// The versions that the actions leave kept. Requires that each is kept and forgotten in turn.
class Kept {
 public:
  Actions actions;

  std::set<int64_t> versions() {
    for (const Action& action : actions) {
      if (const auto* keep = std::get_if<KeepValues>(&action)) {
        REQUIRE(versions_.insert(keep->version.value()).second);
      } else {
        REQUIRE(versions_.erase(std::get<ForgetValues>(action).version.value()) == 1);
      }
    }
    actions.clear();
    return versions_;
  }

 private:
  std::set<int64_t> versions_;
};

using Versions = std::set<int64_t>;

constexpr Rank kA{0}, kB{1};
constexpr Incarnation kFirst{1}, kSecond{2};

Membership Listed(std::vector<Member> members) {
  return {.generation = Generation(1), .members = std::move(members)};
}
Member MemberOf(Rank rank, Incarnation incarnation) {
  return {.rank = rank, .incarnation = incarnation, .active = true, .start_iteration = {}};
}

TEST_CASE("Pulled versions: a gradient finds the pull of its iteration", "[server][core]") {
  PulledVersions pulled(PulledVersions::Values::kNotNeeded);
  Actions actions;
  pulled.Remember(kA, kFirst, Iteration(0), Version(3), actions);
  CHECK(pulled.ComputedWith(kA, kFirst, Iteration(0)) == Version(3));
  CHECK(pulled.ComputedWith(kA, kFirst, Iteration(1)) == std::nullopt);
  CHECK(pulled.ComputedWith(kA, kSecond, Iteration(0)) == std::nullopt);
  CHECK(pulled.ComputedWith(kB, kFirst, Iteration(0)) == std::nullopt);

  // The next pull may be answered before this gradient comes.
  pulled.Remember(kA, kFirst, Iteration(1), Version(5), actions);
  CHECK(pulled.ComputedWith(kA, kFirst, Iteration(0)) == Version(3));
  pulled.Forget(kA, Iteration(0), actions);
  CHECK(pulled.ComputedWith(kA, kFirst, Iteration(0)) == std::nullopt);
  CHECK(pulled.ComputedWith(kA, kFirst, Iteration(1)) == Version(5));
  CHECK(actions.empty());
}

TEST_CASE("Pulled versions: values are kept as long as any worker may need them",
          "[server][core]") {
  PulledVersions pulled(PulledVersions::Values::kKept);
  Kept kept;
  pulled.Remember(kA, kFirst, Iteration(0), Version(0), kept.actions);
  pulled.Remember(kB, kFirst, Iteration(0), Version(0), kept.actions);
  CHECK(kept.versions() == Versions{0});
  pulled.Forget(kA, Iteration(0), kept.actions);
  CHECK(kept.versions() == Versions{0});
  pulled.Remember(kA, kFirst, Iteration(1), Version(1), kept.actions);
  CHECK(kept.versions() == Versions{0, 1});
  pulled.Forget(kB, Iteration(0), kept.actions);
  CHECK(kept.versions() == Versions{1});
  pulled.Forget(kB, Iteration(0), kept.actions);  // Nothing is remembered of it any more.
  pulled.Forget(Rank(7), Iteration(0), kept.actions);
  CHECK(kept.versions() == Versions{1});
}

TEST_CASE("Pulled versions: a repeated pull replaces the one before", "[server][core]") {
  PulledVersions pulled(PulledVersions::Values::kKept);
  Kept kept;
  pulled.Remember(kA, kFirst, Iteration(4), Version(2), kept.actions);
  pulled.Remember(kA, kFirst, Iteration(4), Version(2), kept.actions);
  CHECK(kept.versions() == Versions{2});
  pulled.Remember(kA, kFirst, Iteration(4), Version(3), kept.actions);
  CHECK(kept.versions() == Versions{3});
  CHECK(pulled.ComputedWith(kA, kFirst, Iteration(4)) == Version(3));
}

TEST_CASE("Pulled versions: of each worker no more than the last two pulls", "[server][core]") {
  PulledVersions pulled(PulledVersions::Values::kKept);
  Kept kept;
  for (int64_t i = 0; i < 5; ++i) {
    pulled.Remember(kA, kFirst, Iteration(i), Version(10 + i), kept.actions);
    pulled.Remember(kB, kFirst, Iteration(i), Version(10 + i), kept.actions);
  }
  CHECK(kept.versions() == Versions{13, 14});
}

TEST_CASE("Pulled versions: another incarnation starts with nothing, and a dead one leaves nothing",
          "[server][core]") {
  PulledVersions pulled(PulledVersions::Values::kKept);
  Kept kept;
  pulled.Remember(kA, kFirst, Iteration(0), Version(0), kept.actions);
  pulled.Remember(kB, kFirst, Iteration(0), Version(1), kept.actions);
  pulled.Remember(kA, kSecond, Iteration(7), Version(2), kept.actions);
  CHECK(kept.versions() == Versions{1, 2});
  CHECK(pulled.ComputedWith(kA, kFirst, Iteration(0)) == std::nullopt);
  pulled.Remember(kA, kFirst, Iteration(8), Version(3), kept.actions);  // Its incarnation is over.
  CHECK(kept.versions() == Versions{1, 2});

  pulled.SetMembership(Listed({MemberOf(kA, kSecond), MemberOf(kB, kFirst)}), kept.actions);
  CHECK(kept.versions() == Versions{1, 2});
  pulled.SetMembership(Listed({MemberOf(kA, kSecond), MemberOf(kB, kSecond)}), kept.actions);
  CHECK(kept.versions() == Versions{2});
  CHECK(pulled.ComputedWith(kB, kFirst, Iteration(0)) == std::nullopt);
  pulled.SetMembership(Listed({}), kept.actions);
  CHECK(kept.versions() == Versions{});
}

}  // namespace
}  // namespace capstan::server::pulled_versions_test
