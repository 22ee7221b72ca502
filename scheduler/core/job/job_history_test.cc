#include "scheduler/core/job/job_history.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace capstan::scheduler::job_history_test {
namespace {

Instant At(int second) { return Instant::FromOrigin(absl::Seconds(second)); }

JobEvent Of(JobEventKind kind, const NodeId& node = "", const std::string& text = "") {
  return {kind, node, text, {}, {}};
}

JobEvent Only(const Event& event) {
  const std::vector<JobEvent> notable = NotableIn(event);
  REQUIRE(notable.size() == 1);
  return notable[0];
}

TEST_CASE("Job history: equal events that follow each other are one, with a count",
          "[scheduler][core]") {
  JobHistory history;
  const JobEvent full = Of(JobEventKind::kDiskFull, "server-1", "no room");
  CHECK(history.Add(full, At(1)));
  CHECK(history.Add(full, At(5)));
  CHECK(history.Add(Of(JobEventKind::kDiskFull, "server-2", "no room"), At(6)));
  CHECK(history.Add(full, At(7)));
  REQUIRE(history.events().size() == 3);
  CHECK(history.events()[0].count == 2);
  CHECK(history.events()[0].first == At(1));
  CHECK(history.events()[0].last == At(5));
  CHECK(history.events()[2].count == 1);
  CHECK(history.forgotten() == 0);
}

TEST_CASE("Job history: it is bounded in number and in bytes", "[scheduler][core]") {
  JobHistory history;
  const std::string text(10'000, 'x');
  for (int i = 0; i < 130; ++i) {
    history.Add(Of(JobEventKind::kTaskDied, absl::StrCat("worker-", i), text), At(i));
  }
  REQUIRE(history.events().size() == JobHistory::kEventsMax);
  CHECK(history.forgotten() == 30);
  CHECK(history.events().front().node == "worker-30");
  CHECK(history.events().back().text.size() == JobHistory::kTextBytesMax);
  CHECK(history.events().back().text.substr(JobHistory::kTextBytesMax - 4) == "x...");
}

TEST_CASE("Job history: replicas are there again only after some were missing",
          "[scheduler][core]") {
  JobHistory history;
  CHECK_FALSE(history.Add(Of(JobEventKind::kReplicated), At(1)));
  CHECK(history.Add(Of(JobEventKind::kDegraded), At(2)));
  CHECK(history.Add(Of(JobEventKind::kReplicated), At(3)));
  CHECK_FALSE(history.Add(Of(JobEventKind::kReplicated), At(4)));
  CHECK(history.events().size() == 2);
}

TEST_CASE("Job history: a job that was taken up says from where, and what may be repeated",
          "[scheduler][core]") {
  const JobEvent adopted = Only(JobAdopted{"job-1", "0a1b", absl::Seconds(3)});
  CHECK(adopted.kind == JobEventKind::kRecovered);
  CHECK(adopted.text ==
        "taken up from its logs, as a job of cluster 0a1b; where it stood was "
        "recorded 3.0 s before");
  const JobEvent repeated = Only(TrainedTwice{"job-1", 12});
  CHECK(repeated.kind == JobEventKind::kRecovered);
  CHECK_THAT(repeated.text, Catch::StartsWith("at most 12 batches"));
}

TEST_CASE("Job history: a full disk is told from other failures of servers and checkpoints",
          "[scheduler][core]") {
  const std::string full = "cannot write /logs/wal-3: No space left on device";
  const JobEvent log = Only(ServerFailed{"job-1", "server-1", full});
  CHECK(log.kind == JobEventKind::kDiskFull);
  CHECK(log.node == "server-1");
  CHECK_THAT(log.text, Catch::Contains(full));
  CHECK(Only(ServerFailed{"job-1", "server-1", "Input/output error"}).kind ==
        JobEventKind::kServerLost);

  CheckpointEnded ended{"job-1", CheckpointId(3), "/c/checkpoint-3", full, "server-2"};
  CHECK(Only(ended).kind == JobEventKind::kDiskFull);
  CHECK(Only(ended).node == "server-2");
  CHECK_THAT(Only(ended).text, Catch::StartsWith("no checkpoint /c/checkpoint-3: "));
  ended.why = "server-2 is gone";
  CHECK(Only(ended).kind == JobEventKind::kCheckpointFailed);
  ended.why.clear();
  CHECK(NotableIn(ended).empty());
}

TEST_CASE("Job history: new primaries are named, and how many shards lack replicas",
          "[scheduler][core]") {
  RoutingChanged changed{.job = "job-1", .generation = Generation(4)};
  changed.shards = 16;
  changed.replicas = 1;
  changed.degraded = 5;
  changed.moves = {{"server-1", "server-2", /*from_lives=*/false, 3},
                   {"server-3", "server-2", /*from_lives=*/true, 1},
                   {"server-4", "server-4", /*from_lives=*/false, 2}};
  const std::vector<JobEvent> events = NotableIn(changed);
  REQUIRE(events.size() == 4);
  CHECK(events[0].kind == JobEventKind::kFailover);
  CHECK(events[0].node == "server-2");
  CHECK(events[0].text == "it is the primary of 3 shards of server-1 now");
  CHECK(events[1].kind == JobEventKind::kShardsMoved);
  CHECK(events[1].text == "it is the primary of 1 shard of server-3 now");
  CHECK(events[2].kind == JobEventKind::kFailover);
  CHECK(events[2].text == "2 shards are held again");
  CHECK(events[3].kind == JobEventKind::kDegraded);
  CHECK(events[3].text == "5 of 16 shards without a replica");

  changed.moves.clear();
  changed.degraded_before = 5;
  CHECK(NotableIn(changed).empty());
  changed.degraded = 0;
  CHECK(Only(changed).kind == JobEventKind::kReplicated);
}

TEST_CASE("Job history: tasks that die by a fault and start again are events, ordinary ends not",
          "[scheduler][core]") {
  const TaskKey task{"job-1", Rank(2), Incarnation(7)};
  const JobEvent died =
      Only(TaskDied{task, "worker-1", {FailureReason::kTaskCrashed, "signal 11"}, true});
  CHECK(died.kind == JobEventKind::kTaskDied);
  CHECK(died.node == "worker-1");
  CHECK(died.text == "task 2 died: signal 11");
  CHECK(NotableIn(TaskDied{task, "worker-1", {}, false}).empty());
  CHECK(Only(TaskPlaced{task, "worker-2", /*restart=*/true}).kind == JobEventKind::kTaskRestarted);
  CHECK(NotableIn(TaskPlaced{task, "worker-2", /*restart=*/false}).empty());
  CHECK(NotableIn(JobSubmitted{"job-1"}).empty());
}

}  // namespace
}  // namespace capstan::scheduler::job_history_test
