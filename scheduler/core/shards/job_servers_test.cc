#include "scheduler/core/shards/job_servers.h"

#include <catch2/catch.hpp>
#include <string>

namespace capstan::scheduler::job_servers_test {
namespace {

ServerRef Ref(const std::string& node, uint64_t incarnation) {
  return {.node = node, .address = node + ":1", .incarnation = Incarnation(incarnation)};
}

StoredShard Stored(const JobId& job, const std::string& unique_id) {
  StoredShard stored;
  stored.job = job;
  stored.unique_id = unique_id;
  stored.term = Term(3);
  return stored;
}

}  // namespace

TEST_CASE("Job servers: a server that has failed does not live until its next incarnation",
          "[scheduler]") {
  JobServers servers;
  REQUIRE(servers.Set(Ref("a", 1), /*draining=*/false));
  CHECK_FALSE(servers.Set(Ref("a", 1), /*draining=*/false));
  servers.Died("a");
  servers.SetFailed(Ref("a", 1));
  CHECK_FALSE(servers.Lives(Ref("a", 1)));
  CHECK_FALSE(servers.Set(Ref("a", 1), /*draining=*/false));
  CHECK(servers.HasFailed("a"));
  CHECK(servers.Set(Ref("a", 2), /*draining=*/false));
  CHECK_FALSE(servers.HasFailed("a"));
  CHECK(servers.Lives(Ref("a", 2)));
  CHECK_FALSE(servers.Lives(Ref("a", 1)));
}

TEST_CASE("Job servers: shards are given to members that are not to be left", "[scheduler]") {
  JobServers servers;
  for (const char* node : {"a", "b", "c", "d"}) servers.Set(Ref(node, 1), node[0] == 'b');
  servers.SetAvoided({"c"});
  SECTION("all servers are members of a job that asks for no number") {
    servers.Choose(/*servers=*/0, /*needed=*/2, {});
    CHECK(servers.good() == std::set<NodeId>{"a", "d"});
  }
  SECTION("a job has as many as it asks for, or its copies need") {
    servers.Choose(/*servers=*/1, /*needed=*/1, {});
    CHECK(servers.good() == std::set<NodeId>{"a"});
    servers.Choose(/*servers=*/1, /*needed=*/2, {});
    CHECK(servers.good() == std::set<NodeId>{"a", "d"});
  }
  SECTION("those whose logs may be asked for are given nothing") {
    servers.Choose(/*servers=*/0, /*needed=*/1, {"a"});
    CHECK(servers.good() == std::set<NodeId>{"d"});
  }
  SECTION("an avoided server is better than none") {
    servers.Died("a");
    servers.Died("d");
    CHECK_FALSE(servers.HasAnother("b"));
    servers.Choose(/*servers=*/0, /*needed=*/1, {});
    CHECK(servers.good() == std::set<NodeId>{"c"});
  }
}

TEST_CASE("Job servers: logs of other jobs, or of another job of that id, are passed over",
          "[scheduler]") {
  JobServers servers;
  CHECK_FALSE(servers.SetStored("a", "job-1", "x", {Stored("job-1", "x")}));
  servers.Set(Ref("a", 1), /*draining=*/false);
  REQUIRE(servers.SetStored("a", "job-1", "x", {Stored("job-2", "x"), Stored("job-1", "y")}));
  CHECK(servers.at("a").stored.empty());
  REQUIRE(servers.SetStored("a", "job-1", "x", {Stored("job-1", "x")}));
  CHECK(servers.at("a").stored.size() == 1);
}

TEST_CASE("Job servers: an older table than the one that a server goes by changes nothing",
          "[scheduler]") {
  JobServers servers;
  servers.Set(Ref("a", 1), /*draining=*/false);
  CHECK(servers.NoteApplied("a", Generation(2)));
  CHECK_FALSE(servers.NoteApplied("a", Generation(2)));
  CHECK_FALSE(servers.NoteApplied("b", Generation(3)));
  CHECK(servers.at("a").applied == Generation(2));
}

}  // namespace capstan::scheduler::job_servers_test
