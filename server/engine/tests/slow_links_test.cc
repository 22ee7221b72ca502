// Whole shards on their way to replicas behind links of different speed.
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "server/engine/job/held_job.h"
#include "server/engine/testing/job_fixture.h"

namespace capstan::server::slow_links_test {
namespace {

// Servers of one job; messages travel when the test says so.
class Cluster final : public ReplicaTransport {
 public:
  struct Letter {
    NodeId to;
    ReplicaRequest request;
    Done done;
  };

  HeldJob& operator[](const NodeId& node) {
    std::shared_ptr<HeldJob>& job = jobs_[node];
    if (job == nullptr) {
      TestJobOptions options{.consistency = {.mode = ConsistencyMode::kAsp}};
      options.node = node;
      options.safe_replies = true;
      options.clock = &clock_;
      options.transport = this;
      job = MakeEmptyTestJob(options);
    }
    return *job;
  }
  void Send(const v1::ServerAddress& to, ReplicaRequest request, Moved, Done done) override {
    mail.push_back({.to = to.node_id(), .request = std::move(request), .done = std::move(done)});
  }
  void Deliver(const Letter& letter) {
    auto response = std::make_shared<v1::ReplicateResponse>();
    (*this)[letter.to].replica_calls().Replicate(
        *letter.request.message, response.get(),
        [response, done = letter.done](const absl::Status& status) { done(status, *response); });
  }

  std::deque<Letter> mail;

 private:
  ManualClock clock_;
  std::map<NodeId, std::shared_ptr<HeldJob>> jobs_;
};

TEST_CASE("Slow links: installs over them hold up none to another server (issue 20)", "[server]") {
  Cluster cluster;
  TakeRouting(cluster["server-1"], TestRouting(1));
  v1::RoutingTable routing = TestRouting(2);
  for (const char* node : {"server-2", "server-3", "server-4"}) {
    AddReplica(&routing, node, /*in_sync=*/false);
  }
  for (const char* node : {"server-2", "server-3", "server-4", "server-1"}) {
    TakeRouting(cluster[node], routing);
  }
  std::vector<Cluster::Letter> on_their_way;  // Whole shards that do not arrive.
  while (!cluster.mail.empty()) {
    Cluster::Letter next = std::move(cluster.mail.front());
    cluster.mail.pop_front();
    if (next.to != "server-4" && next.request.message->has_install()) {
      on_their_way.push_back(std::move(next));
    } else {
      cluster.Deliver(next);
    }
  }
  CHECK(on_their_way.size() == 4);
  const std::vector<v1::ReplicaState> states = cluster["server-1"].ReplicaStates();
  REQUIRE(states.size() == 2);
  for (const v1::ReplicaState& state : states) {
    CHECK(state.node_id() == "server-4");
    CHECK(state.state() == v1::ReplicaState::FILLED);
  }
}

}  // namespace
}  // namespace capstan::server::slow_links_test
