#include "common/net/socket/connection_limits.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

namespace capstan::connection_limits_test {
namespace {

using Id = ConnectionLimits::Id;

Instant At(double seconds) { return Instant::FromOrigin(absl::Seconds(seconds)); }

ConnectionLimits::Options Small() {
  return {.connections_max = 6,
          .connections_per_address_max = 4,
          .unproven_max = 4,
          .unproven_per_address_max = 2};
}

TEST_CASE("ConnectionLimits: who does not prove itself in time is closed", "[net]") {
  ConnectionLimits limits(Small());
  CHECK(limits.NextDeadline() == Instant::InfiniteFuture());
  CHECK_FALSE(limits.Add(1, "a", At(0)).has_value());
  CHECK_FALSE(limits.Add(2, "b", At(1)).has_value());
  CHECK_FALSE(limits.Add(3, "c", At(2)).has_value());
  CHECK(limits.NextDeadline() == At(5));
  limits.Prove(2);
  CHECK(limits.TakeExpired(At(4.9)).empty());
  CHECK(limits.TakeExpired(At(6.5)) == std::vector<Id>{1});
  CHECK(limits.NextDeadline() == At(7));
  CHECK(limits.TakeExpired(At(7)) == std::vector<Id>{3});
  CHECK(limits.TakeExpired(At(1000)).empty());  // The second one is proven.
  CHECK(limits.count() == 1);
}

TEST_CASE("ConnectionLimits: beyond the number of an address its own oldest one goes", "[net]") {
  ConnectionLimits limits(Small());
  limits.Add(1, "b", At(0));
  limits.Add(2, "a", At(0));
  limits.Add(3, "a", At(0));
  CHECK(limits.Add(4, "a", At(0)) == 2);
  CHECK(limits.Add(5, "a", At(0)) == 3);
  CHECK_FALSE(limits.Add(6, "b", At(0)).has_value());
  SECTION("one that has said something goes after those that have not") {
    limits.NoteHeard(4);
    CHECK(limits.Add(7, "a", At(0)) == 5);
    limits.NoteHeard(7);
    CHECK(limits.Add(8, "a", At(0)) == 4);
  }
  SECTION("those that are closed or proven leave room") {
    limits.Prove(4);
    CHECK_FALSE(limits.Add(7, "a", At(0)).has_value());
    limits.Remove(5);
    CHECK_FALSE(limits.Add(8, "a", At(0)).has_value());
    limits.Prove(7);
    limits.Prove(8);
    CHECK_FALSE(limits.Add(9, "a", At(0)).has_value());
    CHECK(limits.Add(10, "a", At(0)) == 9);  // Four of its address, though one is unproven.
  }
}

TEST_CASE("ConnectionLimits: a proven connection never goes", "[net]") {
  ConnectionLimits limits(Small());
  for (Id id = 1; id <= 6; ++id) {
    CHECK_FALSE(limits.Add(id, std::string(1, static_cast<char>('a' + id)), At(0)).has_value());
    limits.Prove(id);
  }
  CHECK(limits.Add(7, "z", At(0)) == 7);
  CHECK_FALSE(limits.TakeUnproven().has_value());
  limits.Remove(3);
  CHECK_FALSE(limits.Add(8, "z", At(0)).has_value());
  CHECK(limits.Add(9, "y", At(0)) == 8);
  CHECK(limits.TakeUnproven() == 9);
  CHECK(limits.count() == 5);
}

TEST_CASE("ConnectionLimits: a crowd waits until those before it had half a second", "[net]") {
  ConnectionLimits limits(Small());
  for (Id id = 1; id <= 4; ++id) {
    CHECK(limits.MayAcceptFrom(At(1)) == At(1));
    limits.Add(id, std::string(1, static_cast<char>('a' + id)), At(1));
  }
  CHECK(limits.MayAcceptFrom(At(1.1)) == At(1.5));
  CHECK(limits.MayAcceptFrom(At(1.6)) == At(1.6));
  CHECK(limits.Add(5, "z", At(1.6)) == 1);
  CHECK(limits.MayAcceptFrom(At(1.6)) == At(1.6));  // The second one has had its time, too.
  limits.Prove(2);
  limits.Remove(2);
  limits.Remove(2);  // No effect.
  CHECK(limits.MayAcceptFrom(At(1.2)) == At(1.2));
}

// An attacker of one address floods the port, a peer of another proves itself.
TEST_CASE("ConnectionLimits: a flood from one address does not touch another", "[net]") {
  ConnectionLimits limits({});
  Id id = 0;
  std::optional<Id> closed;
  for (int second = 0; second < 100; ++second) {
    for (int i = 0; i < 100; ++i) {
      closed = limits.Add(++id, "attacker", At(second));
      CHECK((!closed.has_value() || *closed < id));
    }
    const Id honest = ++id;
    CHECK_FALSE(limits.Add(honest, "peer", At(second)).has_value());
    for (int i = 0; i < 100; ++i) CHECK(limits.Add(++id, "attacker", At(second)) != honest);
    limits.Prove(honest);
    limits.Remove(honest);
    for (const Id expired : limits.TakeExpired(At(second + 0.5))) CHECK(expired != honest);
    REQUIRE(limits.count() <= 128);
  }
}

}  // namespace
}  // namespace capstan::connection_limits_test
