#include "scheduler/core/work/job_tasks.h"

#include <catch2/catch.hpp>

namespace capstan::scheduler::job_tasks_test {
namespace {

Instant At(double seconds) { return Instant::FromOrigin(absl::Seconds(seconds)); }

TEST_CASE("Job tasks: a task has the start limit to report first, then its lease",
          "[scheduler][core]") {
  JobTasks tasks(2, {.lease = absl::Seconds(5), .start_limit = absl::Seconds(30)});
  CHECK(tasks.Unplaced().size() == 2);
  CHECK(tasks.NextDeadline() == Instant::InfiniteFuture());
  tasks.Place(Rank(1), Incarnation(7), "worker-1", "h:1", At(0));
  CHECK(tasks.NextDeadline() == At(30));
  CHECK(tasks.Live().empty());
  Task& task = *tasks.FindIncarnation(Rank(1), Incarnation(7));
  tasks.Renew(task, /*preparing=*/true, At(6));
  CHECK(tasks.Live().empty());
  CHECK(tasks.NextDeadline() == At(11));
  tasks.Restored(At(8), absl::Seconds(2));
  CHECK(tasks.NextDeadline() == At(15));
  tasks.Renew(task, /*preparing=*/false, At(9));
  tasks.Renew(task, /*preparing=*/true, At(10));  // This report is late.
  CHECK(tasks.Live() == std::vector<Rank>{Rank(1)});
  CHECK(tasks.Expired(At(14)).empty());
  CHECK(tasks.Expired(At(15)) == std::vector<Rank>{Rank(1)});
}

TEST_CASE("Job tasks: only the newest placed incarnation of a rank is found", "[scheduler][core]") {
  JobTasks tasks(1, {});
  tasks.Place(Rank(0), Incarnation(3), "worker-1", "h:1", At(0));
  CHECK(tasks.FindIncarnation(Rank(0), Incarnation(2)) == nullptr);
  CHECK(tasks.FindIncarnation(Rank(1), Incarnation(3)) == nullptr);
  CHECK(tasks.FindIncarnation(Rank(-1), Incarnation(3)) == nullptr);
  tasks.End(Rank(0));
  CHECK(tasks.FindIncarnation(Rank(0), Incarnation(3)) == nullptr);
  tasks.Place(Rank(0), Incarnation(4), "worker-2", "h:2", At(0));
  CHECK(tasks.FindIncarnation(Rank(0), Incarnation(4))->node == "worker-2");
  CHECK(tasks.OnNode("worker-1").empty());
}

TEST_CASE("Job tasks: the highest iteration is that of live tasks", "[scheduler][core]") {
  JobTasks tasks(2, {});
  tasks.Place(Rank(0), Incarnation(1), "w", "h:1", At(0));
  tasks.Place(Rank(1), Incarnation(2), "w", "h:1", At(0));
  tasks.Renew(tasks.at(Rank(0)), /*preparing=*/false, At(1));
  tasks.at(Rank(0)).iterations = Iteration(4);
  tasks.at(Rank(1)).iterations = Iteration(9);
  CHECK(tasks.HighestIteration() == Iteration(4));
}

}  // namespace
}  // namespace capstan::scheduler::job_tasks_test
