#include "scheduler/core/shards/job_members.h"

#include <catch2/catch.hpp>
#include <optional>

namespace capstan::scheduler::job_members_test {
namespace {

const Instant kNow;

JobMembers::Primaries TwoServers() {
  return {{"server-1", Generation(1)}, {"server-2", Generation(1)}};
}

void ApplyAll(JobMembers& members) {
  for (const char* server : {"server-1", "server-2"}) {
    members.Acknowledge(server, Generation(1), members.membership().generation);
  }
}

TEST_CASE("Job members: tables are ready when every server has applied the routing",
          "[scheduler][core]") {
  JobMembers members(TwoServers(), kNow);
  members.Acknowledge("server-1", Generation(1), Generation(1));
  CHECK_FALSE(members.tables_ready());
  CHECK(members.Behind() == "server-2");
  members.Acknowledge("server-2", Generation(1), Generation(1));
  CHECK(members.tables_ready());
  CHECK_FALSE(members.Behind().has_value());
}

TEST_CASE(
    "Job members: a member gets work only after all servers have seen it inactive, then active",
    "[scheduler][core]") {
  JobMembers members(TwoServers(), kNow);
  members.Add(Rank(0), Incarnation(5), kNow);
  CHECK_FALSE(members.MayActivate(Rank(0)));
  members.Acknowledge("server-1", Generation(1), members.membership().generation);
  CHECK_FALSE(members.MayActivate(Rank(0)));
  members.Acknowledge("server-2", Generation(1), members.membership().generation);
  CHECK(members.MayActivate(Rank(0)));

  members.Activate(Rank(0), Iteration(12), kNow);
  CHECK(members.Find(Rank(0))->active);
  CHECK_FALSE(members.IsReady(Rank(0)));
  ApplyAll(members);
  CHECK(members.IsReady(Rank(0)));
  CHECK(members.Find(Rank(0))->start_iteration == Iteration(12));

  members.Deactivate(Rank(0), kNow);
  CHECK_FALSE(members.IsReady(Rank(0)));
  CHECK_FALSE(members.MayActivate(Rank(0)));
  ApplyAll(members);
  CHECK(members.MayActivate(Rank(0)));
}

TEST_CASE("Job members: one member's change does not stop another", "[scheduler][core]") {
  JobMembers members(TwoServers(), kNow);
  members.Add(Rank(0), Incarnation(5), kNow);
  ApplyAll(members);
  members.Activate(Rank(0), Iteration(0), kNow);
  ApplyAll(members);
  members.Add(Rank(1), Incarnation(6), kNow);
  CHECK(members.IsReady(Rank(0)));
  CHECK_FALSE(members.MayActivate(Rank(1)));
}

TEST_CASE("Job members: a new incarnation of a rank takes the place of the old one",
          "[scheduler][core]") {
  JobMembers members(TwoServers(), kNow);
  members.Add(Rank(1), Incarnation(6), kNow);
  members.Add(Rank(0), Incarnation(5), kNow);
  members.Add(Rank(1), Incarnation(7), kNow);
  REQUIRE(members.membership().members.size() == 2);
  CHECK(members.membership().members[0].rank == Rank(0));
  CHECK(members.membership().members[1].incarnation == Incarnation(7));
  members.Remove(Rank(1), kNow);
  CHECK(members.membership().members.size() == 1);
  const Generation before = members.membership().generation;
  members.Remove(Rank(1), kNow);
  CHECK(members.membership().generation == before);
}

TEST_CASE("Job members: a fence rises, and is news for the servers", "[scheduler][core]") {
  JobMembers members(TwoServers(), kNow);
  ApplyAll(members);
  members.Fence(Incarnation(8), kNow);
  CHECK(members.Behind().has_value());
  members.Fence(Incarnation(7), kNow);
  CHECK(members.membership().incarnation_floor == Incarnation(8));
}

TEST_CASE(
    "Job members: an acknowledgement of the future counts as the newest, an old one as nothing",
    "[scheduler][core]") {
  JobMembers members(TwoServers(), kNow);
  members.Acknowledge("server-1", Generation(1), Generation(99));
  members.Acknowledge("server-2", Generation(1), Generation(99));
  members.Acknowledge("server-3", Generation(1), Generation(1));
  members.Add(Rank(0), Incarnation(5), kNow);
  CHECK_FALSE(members.MayActivate(Rank(0)));
  ApplyAll(members);
  members.Acknowledge("server-1", Generation(0), Generation(1));
  CHECK(members.MayActivate(Rank(0)));
}

TEST_CASE("Job members: a server that gets on with making shards has its whole time again",
          "[scheduler][core]") {
  const auto at = [](int seconds) { return kNow + absl::Seconds(seconds); };
  JobMembers members(TwoServers(), kNow);
  CHECK(members.Latest()->since == kNow);
  CHECK(members.making().Note("server-1", Making{1, 8, 5}, at(50)));
  CHECK_FALSE(members.making().Note("server-1", Making{1, 8, 5}, at(55)));
  CHECK(members.making().Of("server-1") == Making{1, 8, 5});
  CHECK(members.Latest()->node == "server-2");  // The other is behind, but progresses.
  CHECK(members.Latest()->since == kNow);
  members.Acknowledge("server-2", Generation(1), Generation(1));
  CHECK(members.Latest()->node == "server-1");
  CHECK(members.Latest()->since == at(50));
  // The server initializes another job's shards first.
  CHECK_FALSE(members.making().Note("server-1", Making{1, 8, 5}, at(90)));
  CHECK(members.making().Note("server-1", Making{1, 8, 6}, at(100)));
  CHECK(members.Latest()->since == at(100));
  // Its next incarnation has all of its time again.
  members.Forget("server-1");
  CHECK(members.Latest()->since == kNow);
  CHECK(members.making().Note("server-1", Making{0, 8, 1}, at(170)));
  CHECK(members.Latest()->since == at(170));
  members.Acknowledge("server-1", Generation(1), Generation(1));
  CHECK(members.making().Note("server-1", std::nullopt, at(201)));
  CHECK_FALSE(members.Latest().has_value());
}

TEST_CASE("Job members: who ended is fenced once every primary has a membership without it",
          "[scheduler][core]") {
  JobMembers members(TwoServers(), kNow);
  members.Add(Rank(0), Incarnation(5), kNow);
  members.Add(Rank(1), Incarnation(6), kNow);
  CHECK(members.AreDeadFenced());  // None has ended.
  const int how = GENERATE(0, 1, 2);
  if (how == 0) members.Remove(Rank(0), kNow);
  if (how == 1) members.Add(Rank(0), Incarnation(7), kNow);
  if (how == 2) members.Fence(Incarnation(6), kNow);
  CHECK_FALSE(members.AreDeadFenced());
  members.Acknowledge("server-1", Generation(1), members.membership().generation);
  CHECK_FALSE(members.AreDeadFenced());
  members.Acknowledge("server-2", Generation(1), members.membership().generation);
  CHECK(members.AreDeadFenced());
  members.Activate(Rank(1), Iteration(0), kNow);  // Changes the membership, and ends nobody.
  CHECK(members.AreDeadFenced());
  members.Restored(kNow);  // The store does not say who had ended.
  CHECK_FALSE(members.AreDeadFenced());
}

TEST_CASE("Job members: who is ready stays ready when a server takes over, and others wait for it",
          "[scheduler][core]") {
  JobMembers members(TwoServers(), kNow);
  members.Add(Rank(0), Incarnation(5), kNow);
  members.Add(Rank(1), Incarnation(6), kNow);
  ApplyAll(members);
  members.Activate(Rank(0), Iteration(0), kNow);
  ApplyAll(members);
  REQUIRE(members.IsReady(Rank(0)));
  const Instant later = kNow + absl::Seconds(1);
  members.Acknowledge("server-3", Generation(1), members.membership().generation);
  members.Forget("server-2");
  members.SetPrimaries({{"server-1", Generation(1)}, {"server-3", Generation(4)}}, later);
  CHECK(members.Latest()->since == later);
  CHECK(members.IsReady(Rank(0)));
  CHECK_FALSE(members.tables_ready());
  CHECK_FALSE(members.MayActivate(Rank(1)));
  CHECK(members.Behind() == "server-3");
  // Tables that were dropped and initialized again know an older membership.
  members.Acknowledge("server-3", Generation(4), Generation(1));
  CHECK(members.tables_ready());
  CHECK_FALSE(members.MayActivate(Rank(1)));
  members.Acknowledge("server-3", Generation(4), members.membership().generation);
  CHECK(members.MayActivate(Rank(1)));
}

}  // namespace
}  // namespace capstan::scheduler::job_members_test
