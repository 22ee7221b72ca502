#include "scheduler/core/links/dead_links.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace capstan::scheduler::dead_links_test {
namespace {

const DeadLinks::Options kOptions{.limit = absl::Seconds(10), .memory = absl::Minutes(10)};
const DeadLinks::Link kLink{"worker-0", "server-1"};

TEST_CASE("DeadLinks: a silence is overdue once every report of ten seconds names it",
          "[scheduler][core]") {
  DeadLinks links(kOptions);
  Instant now;
  links.OnReport(Rank(0), "worker-0", {"server-1"}, now);
  CHECK(links.NextDeadline() == now + absl::Seconds(10));
  links.OnReport(Rank(0), "worker-0", {"server-1", "server-2"}, now + absl::Seconds(5));
  CHECK(links.Overdue(now + absl::Milliseconds(9999)).empty());
  const auto overdue = links.Overdue(now + absl::Seconds(10));
  REQUIRE(overdue.size() == 1);
  CHECK(overdue[0].link == kLink);
  CHECK(overdue[0].rank == Rank(0));
  // After one report without the server, the time of silence starts again.
  links.OnReport(Rank(0), "worker-0", {}, now + absl::Seconds(9));
  links.OnReport(Rank(0), "worker-0", {"server-1"}, now + absl::Seconds(10));
  CHECK(links.Overdue(now + absl::Seconds(10)).empty());
  links.RestartLimits(now + absl::Seconds(15));
  CHECK(links.Overdue(now + absl::Seconds(24)).empty());
  links.Excuse(Rank(0), "server-1", now + absl::Seconds(24));
  CHECK(links.Overdue(now + absl::Seconds(33)).empty());
  CHECK(links.Overdue(now + absl::Seconds(34)).size() == 1);
}

TEST_CASE("DeadLinks: what is judged is avoided for ten minutes, or until a new incarnation",
          "[scheduler][core]") {
  DeadLinks links(kOptions);
  const Instant now;
  using Avoid = DeadLinks::Avoid;
  const auto side = GENERATE(Avoid::kWorker, Avoid::kServer, Avoid::kBoth);
  links.OnReport(Rank(0), "worker-0", {"server-1"}, now);
  links.Judge(kLink, side, now);
  CHECK(links.JudgementOf(kLink) == side);
  CHECK(links.StrandedFrom(Rank(0)) == (side == Avoid::kServer ? "" : "server-1"));
  links.OnReport(Rank(0), "worker-0", {}, now);  // The task has ended, or waits for others.
  CHECK(links.AvoidedWorkers().contains("worker-0") == (side != Avoid::kServer));
  CHECK(links.AvoidedServers().contains("server-1") == (side != Avoid::kWorker));
  CHECK(links.Describe() == "worker-0 cannot reach server-1");
  CHECK(links.NextDeadline() == now + absl::Minutes(10));

  SECTION("ten minutes") { links.Expire(now + absl::Minutes(10)); }
  SECTION("it is tried again") {
    links.OnReport(Rank(1), "worker-0", {"server-1"}, now);
    CHECK_FALSE(links.ForgetAvoidedServers());
    links.OnReport(Rank(1), "worker-0", {"server-2"}, now);
    CHECK(links.ForgetAvoidedServers() == (side != Avoid::kWorker));
    if (side == Avoid::kWorker) return;
    links.OnReport(Rank(1), "worker-0", {}, now);
  }
  SECTION("a new incarnation of either end") {
    links.OnNodeDied(GENERATE(std::string("worker-0"), std::string("server-1")));
    CHECK(links.NextDeadline() == Instant::InfiniteFuture());
  }
  CHECK(links.AvoidedWorkers().empty());
  CHECK(links.AvoidedServers().empty());
  CHECK(links.Describe().empty());
}

}  // namespace
}  // namespace capstan::scheduler::dead_links_test
