// A server tells its scheduler which logs it has removed.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/time/clock.h"
#include "server/agent/server_agent.h"
#include "server/engine/job/held_jobs.h"

namespace capstan::server::removed_logs_test {
namespace {

using Strings = std::vector<std::string>;

class Unclaimed final : public UnclaimedLogs {
 public:
  void OnLiving(const std::set<std::string>&) override {}
  Strings CollectDue() override { return std::exchange(due, {}); }

  Strings due;
};

struct Node {
  Node()
      : agent([this] {
          ServerAgent::Options options;
          options.jobs = &jobs;
          options.clock = &clock;
          options.unclaimed = &unclaimed;
          options.on_change = [] {};
          return options;
        }()) {}

  // Makes the next sync, which is answered if `answered`. Returns the removed logs that it names.
  Strings Sync(bool answered = true) {
    v1::SyncNodeRequest request;
    agent.FillState(request);
    if (answered) agent.SyncAnswered(absl::Seconds(1), v1::StoreRevision());
    return {request.removed_logs().begin(), request.removed_logs().end()};
  }

  HeldJobs jobs;
  ManualClock clock;
  Unclaimed unclaimed;
  ServerAgent agent;
};

TEST_CASE("ServerAgent: every sync names the logs that were removed, until the next registration",
          "[server]") {
  Node node;
  CHECK(node.Sync().empty());
  node.unclaimed.due = {"aa-1", "aa-2"};
  CHECK(node.Sync(/*answered=*/false) == Strings{"aa-1", "aa-2"});
  node.unclaimed.due = {"aa-3"};
  CHECK(node.Sync() == Strings{"aa-1", "aa-2"});  // An unanswered sync collects nothing more.
  CHECK(node.Sync() == Strings{"aa-1", "aa-2", "aa-3"});
  v1::RegisterRequest registration;
  node.agent.FillRegistration(registration);
  CHECK(node.Sync().empty());
}

TEST_CASE("ServerAgent: of many logs that were removed the last 1000 are named", "[server]") {
  Node node;
  node.Sync();
  for (int i = 0; i < 1002; ++i) node.unclaimed.due.push_back(std::to_string(i));
  const Strings named = node.Sync();
  REQUIRE(named.size() == 1000);
  CHECK(named.front() == "2");
  CHECK(named.back() == "1001");
}

}  // namespace
}  // namespace capstan::server::removed_logs_test
