#include "server/core/consistency/worker_clocks.h"

#include <catch2/catch.hpp>

namespace capstan::server::worker_clocks_test {
namespace {

Member MemberOf(int32_t rank, uint64_t incarnation, bool active = true, int64_t start = 0) {
  return {.rank = Rank(rank),
          .incarnation = Incarnation(incarnation),
          .active = active,
          .start_iteration = Iteration(start)};
}

Membership Members(std::vector<Member> members) {
  return {.generation = Generation(1), .members = std::move(members)};
}

void Push(WorkerClocks& clocks, int32_t rank, uint64_t incarnation, int64_t iteration) {
  clocks.RecordPush(Rank(rank), Incarnation(incarnation), Iteration(iteration));
}

TEST_CASE("Worker clocks: the slowest active member counts", "[server][core]") {
  WorkerClocks clocks;
  CHECK_FALSE(clocks.members_known());
  clocks.SetMembership(Members({MemberOf(0, 1), MemberOf(1, 2), MemberOf(2, 3, /*active=*/false)}));
  CHECK(clocks.members_known());
  CHECK(clocks.FinishedByAll() == Iteration(0));
  Push(clocks, 0, 1, 4);
  Push(clocks, 0, 1, 2);
  Push(clocks, 1, 2, 1);
  CHECK(clocks.FinishedByAll() == Iteration(2));
  CHECK(clocks.Behind(Iteration(2)).empty());
  CHECK(clocks.Behind(Iteration(3)) == std::vector<Rank>{Rank(1)});
  CHECK(clocks.Behind(Iteration(9)) == std::vector<Rank>{Rank(0), Rank(1)});
}

TEST_CASE("Worker clocks: no active member, nobody to wait for", "[server][core]") {
  WorkerClocks clocks;
  clocks.SetMembership(Members({MemberOf(0, 1, /*active=*/false)}));
  CHECK_FALSE(clocks.FinishedByAll().has_value());
  CHECK(clocks.Behind(Iteration(9)).empty());
}

TEST_CASE("Worker clocks: a new member starts at its start_iteration", "[server][core]") {
  WorkerClocks clocks;
  clocks.SetMembership(Members({MemberOf(0, 1)}));
  Push(clocks, 0, 1, 9);
  clocks.SetMembership(Members({MemberOf(0, 1), MemberOf(1, 2, true, 8)}));
  CHECK(clocks.FinishedByAll() == Iteration(8));
}

TEST_CASE("Worker clocks: a member that stays active keeps its own count", "[server][core]") {
  WorkerClocks clocks;
  clocks.SetMembership(Members({MemberOf(0, 1, true, 3)}));
  Push(clocks, 0, 1, 6);
  clocks.SetMembership(Members({MemberOf(0, 1, true, 3), MemberOf(1, 2, true, 20)}));
  CHECK(clocks.FinishedByAll() == Iteration(7));
}

TEST_CASE("Worker clocks: a member that rested starts again where it is told", "[server][core]") {
  WorkerClocks clocks;
  clocks.SetMembership(Members({MemberOf(0, 1, true, 0)}));
  Push(clocks, 0, 1, 4);
  SECTION("seen at rest") {
    clocks.SetMembership(Members({MemberOf(0, 1, false, 0)}));
    clocks.SetMembership(Members({MemberOf(0, 1, true, 30)}));
    CHECK(clocks.FinishedByAll() == Iteration(30));
  }
  SECTION("its rest fell between two memberships that were seen") {
    clocks.SetMembership(Members({MemberOf(0, 1, true, 30)}));
    CHECK(clocks.FinishedByAll() == Iteration(30));
  }
  SECTION("a start below its own count does not set it back") {
    clocks.SetMembership(Members({MemberOf(0, 1, false, 0)}));
    clocks.SetMembership(Members({MemberOf(0, 1, true, 2)}));
    CHECK(clocks.FinishedByAll() == Iteration(5));
  }
}

TEST_CASE("Worker clocks: a new incarnation does not inherit the count of the old one",
          "[server][core]") {
  WorkerClocks clocks;
  clocks.SetMembership(Members({MemberOf(0, 1)}));
  Push(clocks, 0, 1, 50);
  clocks.SetMembership(Members({MemberOf(0, 2, true, 40)}));
  CHECK(clocks.FinishedByAll() == Iteration(40));
  Push(clocks, 0, 1, 60);  // A late push of the old incarnation.
  CHECK(clocks.FinishedByAll() == Iteration(40));
}

TEST_CASE("Worker clocks: a push that comes before its membership is counted with it",
          "[server][core]") {
  WorkerClocks clocks;
  clocks.SetMembership(Members({MemberOf(0, 1)}));
  Push(clocks, 1, 2, 12);
  CHECK(clocks.FinishedByAll() == Iteration(0));
  Push(clocks, 0, 1, 30);
  clocks.SetMembership(Members({MemberOf(0, 1), MemberOf(1, 2, true, 10)}));
  CHECK(clocks.FinishedByAll() == Iteration(13));
}

TEST_CASE("Worker clocks: a dead member is not counted", "[server][core]") {
  WorkerClocks clocks;
  clocks.SetMembership(Members({MemberOf(0, 1), MemberOf(1, 2)}));
  Push(clocks, 0, 1, 5);
  CHECK(clocks.FinishedByAll() == Iteration(0));
  clocks.SetMembership(Members({MemberOf(0, 1)}));
  CHECK(clocks.FinishedByAll() == Iteration(6));
}

}  // namespace
}  // namespace capstan::server::worker_clocks_test
