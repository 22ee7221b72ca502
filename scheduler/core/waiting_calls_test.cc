#include "scheduler/core/waiting_calls.h"

#include <catch2/catch.hpp>
#include <optional>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/testing/status_matchers.h"

namespace capstan::scheduler::waiting_calls_test {
namespace {

const Instant kNow = Instant::FromOrigin(absl::Seconds(1));

// There is news of one job; calls of other kinds are answered only when they are late.
struct NewsOf {
  JobId job;
  std::optional<JobReply> operator()(const JobNews& awaited, bool is_late) const {
    if (awaited.job != job && !is_late) return std::nullopt;
    return JobReply{.ticket = {}, .job = awaited.job};
  }
  std::optional<CheckpointReply> operator()(const CheckpointNews& awaited, bool is_late) const {
    return is_late ? std::optional(CheckpointReply{.asked = awaited.asked}) : std::nullopt;
  }
  std::optional<SnapshotReply> operator()(const SnapshotNews& awaited, bool is_late) const {
    return is_late ? std::optional(SnapshotReply{.job = awaited.job}) : std::nullopt;
  }
  std::optional<DrainReply> operator()(const DrainNews&, bool is_late) const {
    return is_late ? std::optional(DrainReply()) : std::nullopt;
  }
};

std::vector<uint64_t> Answered(WaitingCalls& calls, const JobId& job, Instant now = kNow) {
  std::vector<Reply> replies;
  calls.AnswerEach(now, NewsOf{job}, replies);
  std::vector<uint64_t> tickets;
  for (const Reply& reply : replies) {
    tickets.push_back(std::visit([](const auto& each) { return each.ticket.value(); }, reply));
  }
  return tickets;
}

TEST_CASE("Waiting calls: news answers the calls that wait for it, once, in the order they came",
          "[scheduler][core]") {
  WaitingCalls calls(10);
  const Instant later = kNow + absl::Seconds(1);
  calls.Hold(Ticket(7), JobNews{"job-1"}, later);
  calls.Hold(Ticket(5), JobNews{"job-2"}, later);
  calls.Hold(Ticket(6), CheckpointNews{"job-1", CheckpointId(1)}, later);
  calls.Hold(Ticket(3), JobNews{"job-1"}, later);
  CHECK(Answered(calls, "job-9").empty());
  CHECK(Answered(calls, "job-1") == std::vector<uint64_t>{7, 3});
  CHECK(Answered(calls, "job-1").empty());
  CHECK(Answered(calls, "job-2") == std::vector<uint64_t>{5});
}

TEST_CASE("Waiting calls: a call of any kind is answered when its time is over",
          "[scheduler][core]") {
  WaitingCalls calls(10);
  CHECK(calls.NextDeadline() == Instant::InfiniteFuture());
  calls.Hold(Ticket(1), DrainNews{"server-1"}, kNow + absl::Seconds(3));
  calls.Hold(Ticket(2), SnapshotNews{"job-1", CheckpointId(1)}, kNow + absl::Seconds(2));
  calls.Hold(Ticket(3), CheckpointNews{"job-1", CheckpointId(1)}, kNow + absl::Seconds(3));
  CHECK(calls.NextDeadline() == kNow + absl::Seconds(2));
  CHECK(Answered(calls, "", kNow + absl::Milliseconds(1999)).empty());
  CHECK(Answered(calls, "", kNow + absl::Seconds(2)) == std::vector<uint64_t>{2});
  CHECK(calls.NextDeadline() == kNow + absl::Seconds(3));
  CHECK(Answered(calls, "", kNow + absl::Seconds(4)) == std::vector<uint64_t>{1, 3});
  CHECK(calls.NextDeadline() == Instant::InfiniteFuture());
}

TEST_CASE("Waiting calls: each kind has its own limit, and an answer makes room",
          "[scheduler][core]") {
  WaitingCalls calls(2);
  calls.Hold(Ticket(1), JobNews{"job-1"}, kNow + absl::Seconds(1));
  REQUIRE_OK(calls.CheckRoom<JobNews>());
  calls.Hold(Ticket(2), JobNews{"job-2"}, kNow + absl::Seconds(1));
  CHECK_STATUS(calls.CheckRoom<JobNews>(), absl::StatusCode::kResourceExhausted,
               "2 calls wait for news of jobs already");
  REQUIRE_OK(calls.CheckRoom<CheckpointNews>());
  Answered(calls, "job-2");
  REQUIRE_OK(calls.CheckRoom<JobNews>());
}

}  // namespace
}  // namespace capstan::scheduler::waiting_calls_test
