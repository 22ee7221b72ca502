#include "scheduler/core/nodes/membership.h"

#include <catch2/catch.hpp>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace capstan::scheduler::membership_test {
namespace {

Instant At(double seconds) { return Instant::FromOrigin(absl::Seconds(seconds)); }

struct Cluster {
  Membership membership{{.lease = absl::Seconds(5), .remember = absl::Hours(1)}};
  Events events;
  uint64_t incarnations = 0;

  absl::StatusOr<NodeId> Join(const std::string& name, Role role, Instant now,
                              const std::string& identity = "",
                              const std::string& address = "h:1") {
    NodeInfo info{.name = name, .role = role, .address = address, .task_capacity = 1};
    info.hostname = "host-a";
    info.pid = 123;
    info.identity = identity;
    return membership.Register(info, Incarnation(++incarnations), now, events);
  }
  absl::Status Renew(const NodeId& id, uint64_t incarnation, Instant now, bool leaving = false) {
    return membership.Renew(id, Incarnation(incarnation), leaving, now);
  }
  void Tick(Instant now) { membership.Tick(now, events); }
  int deaths() const {
    int count = 0;
    for (const Event& event : events) count += std::holds_alternative<NodeDied>(event) ? 1 : 0;
    return count;
  }
};

TEST_CASE("Membership: a node that syncs lives, one that does not for the lease is dead",
          "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("worker-1", Role::kWorker, At(0)));
  CHECK(cluster.membership.NextDeadline() == At(5));
  REQUIRE_OK(cluster.Renew("worker-1", 1, At(4)));
  cluster.Tick(At(5));
  CHECK(cluster.membership.Find("worker-1")->alive);
  CHECK(cluster.membership.NextDeadline() == At(9));
  cluster.Tick(At(9));
  CHECK_FALSE(cluster.membership.Find("worker-1")->alive);
  CHECK(cluster.deaths() == 1);
  CHECK_STATUS(cluster.Renew("worker-1", 1, At(9.5)), absl::StatusCode::kAborted, "ran out");
  cluster.Tick(At(10));
  CHECK(cluster.deaths() == 1);
}

TEST_CASE("Membership: after a restart the living have the time to find the way back, once",
          "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("worker-1", Role::kWorker, At(0)));
  REQUIRE_OK(cluster.Join("worker-2", Role::kWorker, At(0)));
  REQUIRE_OK(cluster.Join("worker-3", Role::kWorker, At(0)));
  cluster.membership.Restored(At(100), absl::Seconds(2));
  CHECK(cluster.membership.Find("worker-1")->last_seen == At(100));
  CHECK(cluster.membership.NextDeadline() == At(105));  // The next check for isolation.
  // A node that is back has only its lease, like its tasks.
  REQUIRE_OK(cluster.Renew("worker-1", 1, At(100.5)));
  REQUIRE_OK(cluster.Renew("worker-3", 3, At(104.9)));
  cluster.Tick(At(105));
  CHECK(cluster.membership.NextDeadline() == At(105.5));
  REQUIRE_OK(cluster.Renew("worker-3", 3, At(105.4)));  // The scheduler is not cut off.
  cluster.Tick(At(105.5));
  CHECK_FALSE(cluster.membership.Find("worker-1")->alive);
  REQUIRE_OK(cluster.Renew("worker-3", 3, At(106.9)));
  cluster.Tick(At(106.9));
  CHECK(cluster.membership.Find("worker-2")->alive);
  cluster.Tick(At(107));
  CHECK_FALSE(cluster.membership.Find("worker-2")->alive);
  REQUIRE(cluster.deaths() == 2);
  // The time for others to take over counts from the node's last message.
  CHECK(std::get<NodeDied>(cluster.events[3]).last_seen == At(100.5));
}

TEST_CASE("Membership: the successor of a process replaces it at once", "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(0), "abc"));
  REQUIRE_OK(cluster.Renew("server-1", 1, At(1)));
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(1), "abc"));
  REQUIRE(cluster.events.size() == 3);
  CHECK(std::get<NodeDied>(cluster.events[1]).incarnation == Incarnation(1));
  CHECK(std::get<NodeJoined>(cluster.events[2]).incarnation == Incarnation(2));
  CHECK_STATUS(cluster.Renew("server-1", 1, At(2)), absl::StatusCode::kAborted, "replaced by 2");
  REQUIRE_OK(cluster.Renew("server-1", 2, At(2)));
}

TEST_CASE("Membership: a copy of a living daemon's folder does not take its name (issue 20)",
          "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(0), "abc"));
  REQUIRE_OK(cluster.Join("server-2", Role::kServer, At(0)));
  for (const double at : {0.4, 0.8, 1.0}) REQUIRE_OK(cluster.Renew("server-1", 1, At(at)));
  const auto copy = [&](Instant now) {
    return cluster.Join("server-1", Role::kServer, now, "abc", "h:2").status();
  };
  CHECK_STATUS(copy(At(1.4)), absl::StatusCode::kAlreadyExists,
               "this one has a copy of its folder, or is its successor and asks too early");
  CHECK(cluster.deaths() == 0);
  SECTION("one that moved after the first had died gets it once that one is silent") {
    REQUIRE_OK(copy(At(1.5)));
    CHECK(cluster.deaths() == 1);
  }
  SECTION("not as soon as the connection has broken: a living one breaks off its sync, too") {
    cluster.membership.Broken("server-1", Incarnation(1), At(1.4));
    CHECK_STATUS(copy(At(1.4)), absl::StatusCode::kAborted, "it may be dead: ask again");
    CHECK(cluster.deaths() == 0);
    REQUIRE_OK(copy(At(1.5)));
    CHECK(cluster.deaths() == 1);
  }
}

TEST_CASE("Membership: a name belongs to the process whose lease lives (issue 21)",
          "[scheduler][core]") {
  Cluster cluster;
  const std::string newcomer = GENERATE("", "def");
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(0), GENERATE("", "abc")));
  REQUIRE_OK(cluster.Join("server-2", Role::kServer, At(0)));
  for (int tenths = 4; tenths <= 620; tenths += 4) {
    REQUIRE_OK(cluster.Renew("server-1", 1, At(tenths / 10.0)));
    REQUIRE_OK(cluster.Renew("server-2", 2, At(tenths / 10.0)));
  }
  const absl::StatusOr<NodeId> refused =
      cluster.Join("server-1", Role::kServer, At(62.3), newcomer);
  CHECK_STATUS(refused.status(), absl::StatusCode::kAlreadyExists,
               "\"server-1\" is held by the server at h:1 (process 123 on host-a), registered "
               "1 min 2 s ago and last heard 0.3 s ago");
  CHECK(cluster.events.size() == 2);
  REQUIRE_OK(cluster.Renew("server-1", 1, At(62.4)));
  SECTION("whose connection breaks may be dying: the newcomer waits for that") {
    cluster.membership.Broken("server-1", Incarnation(1), At(62.5));
    CHECK_STATUS(cluster.Join("server-1", Role::kServer, At(62.6), newcomer).status(),
                 absl::StatusCode::kAborted, "ask again");
    cluster.Tick(At(63));
  }
  SECTION("which is silent likewise, until its lease is over") {
    CHECK_STATUS(cluster.Join("server-1", Role::kServer, At(63), newcomer).status(),
                 absl::StatusCode::kAborted, "ask again");
    CHECK_STATUS(cluster.Join("server-1", Role::kServer, At(67.3), newcomer).status(),
                 absl::StatusCode::kAborted, "ask again");
  }
  SECTION("also where all are silent, and nobody is declared dead") {
    cluster.Tick(At(67.4));
    REQUIRE(cluster.membership.isolated());
  }
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(67.4), newcomer));
}

TEST_CASE("Membership: nobody has been heard by a scheduler that has just started",
          "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(0), "abc"));
  cluster.membership.Restored(At(10), absl::Seconds(2));
  CHECK_STATUS(cluster.Join("server-1", Role::kServer, At(10.1), "def").status(),
               absl::StatusCode::kAborted, "ask again");
  REQUIRE_OK(cluster.Renew("server-1", 1, At(10.2)));
  CHECK_STATUS(cluster.Join("server-1", Role::kServer, At(10.3), "def").status(),
               absl::StatusCode::kAlreadyExists, "held by");
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(10.3), "abc"));
}

// sim --seed=3824549569: the scheduler had stood still, and a process on a copy of the folder asked
// before the next sync of the one that has the name was read.
TEST_CASE("Membership: a scheduler that has just started waits until it could have heard a node",
          "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(0), "abc"));
  cluster.membership.Restored(At(10), absl::ZeroDuration());
  CHECK_STATUS(cluster.Join("server-1", Role::kServer, At(10), "abc", "h:2").status(),
               absl::StatusCode::kAborted, "ask again");
  SECTION("it is heard") {
    REQUIRE_OK(cluster.Renew("server-1", 1, At(10.2)));
    CHECK_STATUS(cluster.Join("server-1", Role::kServer, At(10.4), "abc", "h:2").status(),
                 absl::StatusCode::kAlreadyExists, "held by");
  }
  SECTION("it is not") {
    REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(12), "abc", "h:2"));
  }
}

TEST_CASE("Membership: nameless nodes are numbered by role", "[scheduler][core]") {
  Cluster cluster;
  CHECK(*cluster.Join("", Role::kWorker, At(0)) == "worker-1");
  CHECK(*cluster.Join("", Role::kWorker, At(0)) == "worker-2");
  CHECK(*cluster.Join("", Role::kServer, At(0)) == "server-1");
}

TEST_CASE("Membership: a leaving node is alive and gets nothing new", "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("worker-1", Role::kWorker, At(0)));
  REQUIRE_OK(cluster.Join("worker-2", Role::kWorker, At(0)));
  REQUIRE_OK(cluster.Renew("worker-1", 1, At(1), /*leaving=*/true));
  REQUIRE_OK(cluster.Renew("worker-1", 1, At(2)));
  CHECK(cluster.membership.All().size() == 2);
  CHECK(cluster.deaths() == 0);
  const auto available = cluster.membership.Available(Role::kWorker);
  REQUIRE(available.size() == 1);
  CHECK(available[0]->id == "worker-2");
}

TEST_CASE("Membership: a node whose connection broke is dead soon, unless it syncs again",
          "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(0)));
  for (const double at : {0.4, 0.8, 1.0}) REQUIRE_OK(cluster.Renew("server-1", 1, At(at)));
  cluster.membership.Broken("server-1", Incarnation(9), At(1.1));  // Another incarnation's call.
  CHECK(cluster.membership.NextDeadline() == At(6));
  cluster.membership.Broken("server-1", Incarnation(1), At(1.1));
  cluster.membership.Broken("server-1", Incarnation(1), At(1.3));
  CHECK(cluster.membership.NextDeadline() == At(1.6));
  REQUIRE_OK(cluster.Renew("server-1", 1, At(1.4)));
  cluster.Tick(At(1.6));
  CHECK(cluster.membership.Find("server-1")->alive);
  cluster.membership.Broken("server-1", Incarnation(1), At(2));
  cluster.Tick(At(2.5));
  CHECK_FALSE(cluster.membership.Find("server-1")->alive);
  const NodeDied died = std::get<NodeDied>(cluster.events.back());
  CHECK(died.last_seen == At(1.4));
  CHECK(died.why == "its connection broke, and no sync for 1.1 s");
}

// Issue 20: when a cut link works again, a call arrives that its node had given up, and it is cut.
TEST_CASE("Membership: of a node that was silent a cut call says nothing for a while",
          "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(0)));
  REQUIRE_OK(cluster.Renew("server-1", 1, At(2)));
  cluster.membership.Broken("server-1", Incarnation(1), At(2.1));
  cluster.Tick(At(2.6));
  CHECK(cluster.membership.Find("server-1")->alive);
  for (const double at : {2.4, 2.8, 3.2, 3.6, 4.0, 4.4})
    REQUIRE_OK(cluster.Renew("server-1", 1, At(at)));
  cluster.membership.Broken("server-1", Incarnation(1), At(4.6));
  cluster.Tick(At(5.1));
  CHECK_FALSE(cluster.membership.Find("server-1")->alive);
}

TEST_CASE("Membership: a drained name stays drained through its processes", "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(0), "abc"));
  REQUIRE_OK(cluster.membership.SetDraining("server-1", true));
  CHECK(cluster.membership.Available(Role::kServer).empty());
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(1), "abc"));
  CHECK(cluster.membership.Available(Role::kServer).empty());
  REQUIRE_OK(cluster.membership.SetDraining("server-1", false));
  CHECK(cluster.membership.Available(Role::kServer).size() == 1);
  CHECK_STATUS(cluster.membership.SetDraining("server-2", true), absl::StatusCode::kNotFound,
               "no node \"server-2\"");
}

TEST_CASE("Membership: the dead are listed for an hour", "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("worker-1", Role::kWorker, At(0)));
  REQUIRE_OK(cluster.Join("server-9", Role::kServer, At(0)));
  REQUIRE_OK(cluster.Join("worker-2", Role::kWorker, At(4.9)));  // This node is heard.
  cluster.Tick(At(5));
  CHECK(cluster.deaths() == 2);
  REQUIRE(cluster.membership.All().size() == 3);
  CHECK(cluster.membership.All()[0]->id == "server-9");
  REQUIRE_OK(cluster.Renew("worker-2", 3, At(3599)));
  cluster.Tick(At(3600));
  CHECK(cluster.membership.All().size() == 1);
  CHECK_STATUS(cluster.Renew("worker-1", 1, At(3601)), absl::StatusCode::kNotFound, "worker-1");
}

TEST_CASE("Membership: a drained name stays drained however long its node is off",
          "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("worker-1", Role::kWorker, At(0)));
  REQUIRE_OK(cluster.membership.SetDraining("worker-1", true));
  cluster.Tick(At(5));
  CHECK(cluster.deaths() == 1);
  cluster.Tick(At(3700));
  CHECK(cluster.membership.NextDeadline() > At(3700));
  REQUIRE_OK(cluster.Join("worker-1", Role::kWorker, At(3700)));
  CHECK(cluster.membership.Available(Role::kWorker).empty());
}

TEST_CASE("Membership: of the dead only the last ones stay listed, and those that are drained",
          "[scheduler][core]") {
  Cluster cluster{.membership = Membership({.lease = absl::Seconds(5), .dead_max = 2})};
  for (int i = 0; i < 5; ++i) {
    REQUIRE_OK(cluster.Join(absl::StrCat("worker-", 9 - i), Role::kWorker, At(10 * i)));
    if (i == 0) REQUIRE_OK(cluster.membership.SetDraining("worker-9", true));
    cluster.Tick(At(10 * i + 5));
  }
  CHECK(cluster.deaths() == 5);
  REQUIRE(cluster.membership.All().size() == 3);
  CHECK(cluster.membership.All()[0]->id == "worker-5");
  CHECK(cluster.membership.All()[1]->id == "worker-6");
  CHECK(cluster.membership.All()[2]->id == "worker-9");
  REQUIRE_OK(cluster.Join("worker-8", Role::kWorker, At(100)));  // It is new again.
}

TEST_CASE("Membership: a crowd of registrations keeps out no daemon that comes back",
          "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(0)));
  cluster.Tick(At(5));
  absl::Status refused;
  for (int i = 0; refused.ok(); ++i) {
    refused = cluster.Join(absl::StrCat("x-", i), Role::kWorker, At(10)).status();
    REQUIRE(i <= 2000);
  }
  CHECK_STATUS(refused, absl::StatusCode::kResourceExhausted, "is new");
  const size_t events = cluster.events.size();
  REQUIRE_OK(cluster.Join("server-1", Role::kServer, At(11)));
  CHECK(cluster.events.size() == events + 1);  // It joined.
  REQUIRE_OK(cluster.Renew("x-7", 9, At(12)));
}

TEST_CASE(
    "Membership: when most fall silent at once nobody is dead, and who comes back has its "
    "incarnation",
    "[scheduler][core]") {
  Cluster cluster;
  for (int i = 1; i <= 4; ++i) {
    REQUIRE_OK(cluster.Join(absl::StrCat("server-", i), Role::kServer, At(0)));
  }
  cluster.membership.Broken("server-1", Incarnation(1), At(2));
  cluster.Tick(At(2.5));  // Resets of some connections change nothing.
  CHECK(cluster.membership.isolated());
  cluster.Tick(At(1000));
  CHECK(cluster.deaths() == 0);
  CHECK(cluster.membership.NextDeadline() == At(1000.5));
  for (int i = 1; i <= 2; ++i) {
    REQUIRE_OK(cluster.Renew(absl::StrCat("server-", i), static_cast<uint64_t>(i), At(1001)));
  }
  cluster.Tick(At(1001));
  CHECK_FALSE(cluster.membership.isolated());
  CHECK(std::get<IsolationEnded>(cluster.events.back()).lasted == absl::Seconds(998.5));
  // The other nodes have the time to come back, and then their leases.
  REQUIRE_OK(cluster.Renew("server-3", 3, At(1003)));
  for (int i = 1; i <= 3; ++i) {
    REQUIRE_OK(cluster.Renew(absl::StrCat("server-", i), static_cast<uint64_t>(i), At(1008.3)));
  }
  cluster.Tick(At(1008.4));
  CHECK(cluster.deaths() == 0);
  cluster.Tick(At(1008.5));  // 1001 + 2.5 + 5.
  CHECK(cluster.deaths() == 1);
  CHECK_FALSE(cluster.membership.Find("server-4")->alive);
}

TEST_CASE("Membership: a registration that cannot be used is refused and says why",
          "[scheduler][core]") {
  Cluster cluster;
  REQUIRE_OK(cluster.Join("n", Role::kServer, At(0)));
  CHECK_STATUS(cluster.Join("n", Role::kWorker, At(0)), absl::StatusCode::kInvalidArgument,
               "\"n\" is a live server at h:1");
  CHECK_STATUS(cluster.Join("a b", Role::kWorker, At(0)), absl::StatusCode::kInvalidArgument,
               "\"a b\"");
  NodeInfo info{.name = "w", .role = Role::kWorker, .address = "", .task_capacity = 1};
  CHECK_STATUS(cluster.membership.Register(info, Incarnation(9), At(0), cluster.events),
               absl::StatusCode::kInvalidArgument, "address: empty");
  info.address = "h:1";
  info.task_capacity = 0;
  CHECK_STATUS(cluster.membership.Register(info, Incarnation(9), At(0), cluster.events),
               absl::StatusCode::kInvalidArgument, "task_capacity: 0");
}

}  // namespace
}  // namespace capstan::scheduler::membership_test
