#include "tests/simulation/checkers/staleness_and_versions.h"

#include <catch2/catch.hpp>

namespace capstan::sim::staleness_and_versions_test {
namespace {

const TaskKey kReader{"sim-1", Rank(0), Incarnation(1)};
const TaskKey kOther{"sim-1", Rank(1), Incarnation(2)};
const ShardKey kShard{TableId(0), ShardId(0)};

struct Fixture {
  Fixture() {
    checker.WorkChanged(kReader, Iteration(0), 1);
    checker.MembershipSent("sim-1", {.generation = Generation(1),
                                     .members = {{kReader.rank, kReader.incarnation, true}}});
  }
  // The other worker begins with the first iteration.
  void OtherBegins() {
    checker.WorkChanged(kOther, Iteration(0), 1);
    checker.MembershipSent("sim-1", {.generation = Generation(2),
                                     .members = {{kReader.rank, kReader.incarnation, true},
                                                 {kOther.rank, kOther.incarnation, true}}});
  }
  void Ask(int64_t iteration) { checker.PullSent(kReader, kShard, Iteration(iteration)); }
  void Answer(int64_t iteration) {
    v1::PullRequest request;
    request.mutable_caller()->set_job_id("sim-1");
    request.mutable_caller()->set_rank(kReader.rank.value());
    request.mutable_caller()->set_incarnation(kReader.incarnation.value());
    request.set_iteration(iteration);
    request.add_shards();
    v1::PullResponse response;
    response.add_shards()->set_outcome(v1::ShardValues::VALUES);
    checker.PullAnswered("server-1", request, response);
  }

  StalenessAndVersions checker{JobOptions{.mode = ConsistencyMode::kSsp, .staleness_bound = 1}};
};

TEST_CASE("Staleness: who was at work when a pull was sent has come within the bound",
          "[simulation]") {
  Fixture job;
  job.OtherBegins();
  job.Ask(12);
  job.Answer(12);
  CHECK(job.checker.failure() ==
        "staleness: server-1 let task 0/1 read table 0 shard 0 at iteration 12 while task 1/2 has "
        "pushed 0 iterations; the bound is 1");
}

TEST_CASE("Staleness: who begins after a pull was sent does not count", "[simulation]") {
  Fixture job;
  job.Ask(12);
  job.OtherBegins();
  job.Answer(12);
  CHECK(job.checker.failure().empty());
}

// A server was stopped before it answered; meanwhile its successor did, and the task went on.
TEST_CASE("Staleness: a late answer to a pull that was given up is judged by who was at work then",
          "[simulation]") {
  Fixture job;
  job.Ask(12);
  job.Ask(13);
  job.OtherBegins();
  job.Answer(12);
  CHECK(job.checker.failure().empty());
}

}  // namespace
}  // namespace capstan::sim::staleness_and_versions_test
