// Tests of an agent that makes shards for a long time: its reports, and its other work meanwhile.
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "server/agent/server_agent.h"
#include "server/agent/testing/agent_fixture.h"

namespace capstan::server::server_agent_making_test {
namespace {

// Lets so many through. Whoever destroys it has let all through.
class Gate {
 public:
  void Pass() {
    absl::MutexLock lock(&mutex_);
    ++came_;
    const auto open = [this, mine = came_] { return open_ >= mine; };
    mutex_.Await(absl::Condition(&open));
  }
  void AwaitComing(int count) {
    absl::MutexLock lock(&mutex_);
    const auto came = [this, count] { return came_ >= count; };
    mutex_.Await(absl::Condition(&came));
  }
  void Open(int count) {
    absl::MutexLock lock(&mutex_);
    open_ += count;
  }

 private:
  absl::Mutex mutex_;
  int came_ = 0;
  int open_ = 0;
};

bool IsMade(const v1::TableState& state) { return !state.has_making(); }

// The test job at generation 2, from a checkpoint.
v1::TableAssignment Restored(const JobId& job) {
  v1::TableAssignment assignment = Whole(2, 2, job);
  assignment.set_restore_term(2);
  assignment.set_restore_folder("checkpoint-4");
  return assignment;
}

v1::SyncNodeResponse Both(const v1::TableAssignment& a, const v1::TableAssignment& b) {
  v1::SyncNodeResponse desired = Desired(a);
  *desired.add_tables() = b;
  return desired;
}

// An agent whose makers wait before each part of checkpoint-4, which both shards are in.
struct Restoring {
  Restoring() {
    TestAgent before;
    v1::TableAssignment assignment = Whole(1, 1);
    before.Take(assignment);
    assignment.mutable_checkpoint()->set_checkpoint_id(4);
    assignment.mutable_checkpoint()->set_folder("checkpoint-4");
    before.Take(assignment);
    node.memory.checkpoints = before.memory.checkpoints;
    node.memory.on_read = [this] { gate.Pass(); };
  }
  ~Restoring() { gate.Open(1000); }

  Gate gate;
  TestAgent node{TestAgent::Orders::kOnThreads};
};

TEST_CASE("Server agent: says how far it is with the shards that it makes", "[server]") {
  Restoring restoring;
  TestAgent& node = restoring.node;
  node.agent.TakeDesired(Both(Restored("job-1"), Restored("job-2")));
  restoring.gate.AwaitComing(1);
  const v1::TableState first = node.State("job-1");
  CHECK(first.routing_generation() == 0);
  CHECK(first.making().made() == 0);
  CHECK(first.making().total() == 2);
  const v1::TableState waiting = node.State("job-2");
  CHECK(waiting.making().total() == 0);
  restoring.gate.Open(1);
  restoring.gate.AwaitComing(2);
  const v1::TableState second = node.State("job-1");
  CHECK(second.making().made() == 1);
  CHECK(second.making().total() == 2);
  CHECK(second.making().progress() > first.making().progress());
  // It does not stand: the other job has its turn first.
  CHECK(node.State("job-2").making().progress() > waiting.making().progress());
  restoring.gate.Open(1);
  const v1::TableState held = node.Await("job-1", IsMade);
  CHECK(held.routing_generation() == 2);
  restoring.gate.AwaitComing(3);
  CHECK(node.State("job-2").making().made() == 0);
  CHECK(node.State("job-2").making().total() == 2);
}

TEST_CASE("Server agent: shards that are wanted no more are not made to the end", "[server]") {
  Restoring restoring;
  TestAgent& node = restoring.node;
  node.agent.TakeDesired(Both(Restored("job-1"), Restored("job-2")));
  restoring.gate.AwaitComing(1);
  SECTION("the job is dropped") { node.agent.TakeDesired(Desired(Restored("job-2"))); }
  SECTION("the job goes back to another checkpoint") {
    v1::TableAssignment other = Restored("job-1");
    other.set_restore_term(3);
    node.agent.TakeDesired(Both(other, Restored("job-2")));
  }
  restoring.gate.Open(1);
  restoring.gate.AwaitComing(2);
  CHECK(node.State("job-2").making().total() == 2);
}

TEST_CASE("Server agent: tables that are held are reported while it makes more of them",
          "[server]") {
  Restoring restoring;
  TestAgent& node = restoring.node;
  node.agent.TakeDesired(Desired(Whole(1, 1, "job-1")));
  node.Await("job-1", IsMade);
  node.agent.TakeDesired(Desired(Restored("job-1")));
  restoring.gate.AwaitComing(1);
  const v1::TableState state = node.State("job-1");
  CHECK(state.routing_generation() == 1);
  CHECK(state.making().total() == 2);
}

TEST_CASE("Server agent: a job is captured while another one is being restored", "[server]") {
  Restoring restoring;
  TestAgent& node = restoring.node;
  v1::TableAssignment stands = Whole(1, 1, "job-1");
  node.agent.TakeDesired(Desired(stands));
  node.Await("job-1", IsMade);
  node.agent.TakeDesired(Both(stands, Restored("job-2")));
  restoring.gate.AwaitComing(1);
  stands.mutable_checkpoint()->set_checkpoint_id(7);
  SECTION("for a checkpoint") { stands.mutable_checkpoint()->set_folder("checkpoint-7"); }
  SECTION("for readers") { stands.mutable_checkpoint()->add_readers(1); }
  node.agent.TakeDesired(Both(stands, Restored("job-2")));
  const v1::TableState state =
      node.Await("job-1", [](const v1::TableState& each) { return each.checkpoints_size() == 1; });
  CHECK(state.checkpoints(0).state() == v1::CheckpointState::CAPTURED);
  CHECK(state.checkpoints(0).not_kept().empty());
  CHECK(node.State("job-2").making().made() == 0);
}

}  // namespace
}  // namespace capstan::server::server_agent_making_test
