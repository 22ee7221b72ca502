// Late gradients from message to message: workers of one job pull and push in a scripted order, a
// replica takes over, and every number is the one of the formula in a loop.
#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "common/testing/status_matchers.h"
#include "server/engine/job/held_job.h"
#include "server/engine/testing/job_fixture.h"

namespace capstan::server::late_gradients_test {
namespace {

constexpr float kLambda = 0.125f;
constexpr ConsistencyRule kAsp{
    .mode = ConsistencyMode::kAsp, .rate_by_staleness = true, .delay_compensation = kLambda};

// Two servers of the job: every message to the second one arrives when the test says so.
class Pair final : public ReplicaTransport {
 public:
  Pair() : primary(Make("server-1")), replica(Make("server-2")) {
    v1::RoutingTable routing = TestRouting(1);
    AddReplica(&routing, "server-2", /*in_sync=*/true);
    TakeRouting(*primary, routing);
    TakeRouting(*replica, routing);
    Deliver();
  }

  void Send(const v1::ServerAddress&, ReplicaRequest request, Moved, Done done) override {
    mail_.emplace_back(std::move(request), std::move(done));
  }
  void Deliver() {
    while (!mail_.empty()) {
      const auto [request, done] = std::move(mail_.front());
      mail_.pop_front();
      auto response = std::make_shared<v1::ReplicateResponse>();
      replica->replica_calls().Replicate(
          *request.message, response.get(),
          [response, done = done](const absl::Status& status) { done(status, *response); });
    }
  }

  std::shared_ptr<HeldJob> primary, replica;

 private:
  std::shared_ptr<HeldJob> Make(const NodeId& node) {
    TestJobOptions options{.consistency = kAsp, .node = node, .safe_replies = true};
    options.transport = this;
    auto job = MakeEmptyTestJob(options);
    job->assignment().SetReadLease(Instant() + absl::Hours(1));
    return job;
  }

  std::deque<std::pair<ReplicaRequest, Done>> mail_;
};

// Pulls for `iteration`; the number that all elements have.
float Pull(Pair& pair, HeldJob& job, int32_t rank, int64_t iteration) {
  v1::PullRequest request = PullOf(rank, iteration, 1000);
  request.mutable_caller()->set_routing_generation(job.assignment().routing_generation().value());
  PullAnswer answer;
  std::optional<absl::Status> ended;
  job.calls().Pull(request, &answer, [&](const absl::Status& status) { ended = status; });
  pair.Deliver();
  REQUIRE(ended.has_value());
  REQUIRE_OK(*ended);
  return NumberIn(std::move(answer));
}

v1::ShardPushResult::Outcome Push(Pair& pair, HeldJob& job, int32_t rank, int64_t iteration,
                                  float gradient) {
  v1::PushRequest request =
      PushOf(rank, iteration, /*slot=*/-1, gradient, static_cast<uint64_t>(iteration + 1));
  request.mutable_caller()->set_routing_generation(job.assignment().routing_generation().value());
  v1::PushResponse response;
  std::optional<absl::Status> ended;
  job.calls().Push(Detach(request), &response, [&](const absl::Status& status) { ended = status; });
  pair.Deliver();
  REQUIRE(ended.has_value());
  REQUIRE_OK(*ended);
  return response.shards(0).outcome();
}

// The update rule of the test's job, sgd of rate 1, with the corrections.
float After(float now, float pulled, int64_t updates, float gradient) {
  if (updates > 0) gradient = gradient + ((kLambda * gradient) * gradient) * (now - pulled);
  if (updates > 1) gradient = gradient / static_cast<float>(updates);
  return now - gradient;
}

TEST_CASE("Late gradients: messages in a scripted order, and a replica that takes over",
          "[server]") {
  constexpr auto kRecorded = v1::ShardPushResult::RECORDED;
  constexpr auto kDuplicate = v1::ShardPushResult::DUPLICATE;
  Pair pair;
  HeldJob& first = *pair.primary;
  float pulled[3];
  for (int32_t rank = 0; rank < 3; ++rank) pulled[rank] = Pull(pair, first, rank, 0);

  float now = 0.0f;
  for (int32_t rank = 0; rank < 3; ++rank) {
    const float gradient = 0.3f + static_cast<float>(rank);
    REQUIRE(Push(pair, first, rank, 0, gradient) == kRecorded);
    now = After(now, pulled[rank], rank, gradient);
    REQUIRE(Push(pair, first, rank, 0, gradient) == kDuplicate);
    pulled[rank] = Pull(pair, first, rank, 1);
    REQUIRE(pulled[rank] == now);
  }
  // Ranks 0 and 1 have both missed two updates.
  REQUIRE(Push(pair, first, 0, 1, 0.7f) == kRecorded);
  now = After(now, pulled[0], 2, 0.7f);
  REQUIRE(Push(pair, first, 1, 1, 0.9f) == kRecorded);
  now = After(now, pulled[1], 2, 0.9f);

  HeldJob& second = *pair.replica;
  TakeRouting(second, TestRouting(2, "server-2", 2));
  REQUIRE(Push(pair, second, 1, 1, 0.9f) == kDuplicate);
  // The new primary does not know what rank 2 has pulled: its gradient is taken as it is.
  REQUIRE(Push(pair, second, 2, 1, 0.5f) == kRecorded);
  now = now - 0.5f;
  pulled[0] = Pull(pair, second, 0, 2);
  REQUIRE(pulled[0] == now);
  pulled[1] = Pull(pair, second, 1, 2);
  REQUIRE(Push(pair, second, 1, 2, 0.25f) == kRecorded);
  now = After(now, pulled[1], 0, 0.25f);
  REQUIRE(Push(pair, second, 0, 2, 0.6f) == kRecorded);
  now = After(now, pulled[0], 1, 0.6f);
  CHECK(Pull(pair, second, 0, 3) == now);
}

}  // namespace
}  // namespace capstan::server::late_gradients_test
