#include "scheduler/core/placement/job_table.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "common/time/instant.h"

namespace capstan::scheduler::job_table_test {
namespace {

JobPlan PlanOf(const JobId& id) {
  JobPlan plan;
  plan.id = id;
  plan.unique_id = absl::StrCat("unique-", id);
  plan.train_count = 10;
  plan.tables = {10};
  plan.folders = {.output = absl::StrCat("/out/", id), .checkpoints = ""};
  return plan;
}

struct Table {
  JobEntry& Add(const JobPlan& plan) { return jobs.Add(plan, now); }
  void Start(const JobId& job) {
    JobEntry& entry = *jobs.Find(job);
    auto routing = std::make_shared<const Routing>(
        PlaceShards(job, Generation(1), entry.plan.tables, {{"server-1", "h:1", Incarnation(1)}}));
    entry.run = std::make_unique<JobRun>(entry.plan, std::move(routing), JobRun::Options{}, now);
    jobs.NoteRunning(entry);
  }
  void StopUnstarted(const JobId& job) {
    JobEntry& entry = *jobs.Find(job);
    entry.stopped = true;
    entry.stopped_at = now;
    jobs.NoteEnded(entry);
  }
  template <typename Entries>
  static std::vector<JobId> Ids(const Entries& entries) {
    std::vector<JobId> ids;
    for (const JobEntry* entry : entries) ids.push_back(entry->plan.id);
    return ids;
  }

  JobTable jobs;
  Instant now = Instant::FromOrigin(absl::Seconds(100));
  Events events;
};

TEST_CASE("Job table: jobs come in the order of their submission", "[scheduler][core]") {
  Table table;
  for (const char* id : {"z-1", "b-2", "a-3"}) table.Add(PlanOf(id));
  table.Start("a-3");
  table.Start("z-1");
  CHECK(Table::Ids(table.jobs.All()) == std::vector<JobId>{"z-1", "b-2", "a-3"});
  CHECK(Table::Ids(table.jobs.Running()) == std::vector<JobId>{"z-1", "a-3"});
}

TEST_CASE("Job table: a job runs from its start until its end is noted", "[scheduler][core]") {
  Table table;
  const JobEntry& entry = table.Add(PlanOf("a-1"));
  CHECK(entry.state() == JobState::kPending);
  CHECK(table.jobs.Running().empty());
  CHECK(table.jobs.RunOf("a-1") == nullptr);
  CHECK(TaskOf(table.jobs, {"a-1", Rank(0), Incarnation(1)}) == nullptr);
  table.Start("a-1");
  CHECK(entry.state() == JobState::kRunning);
  table.jobs.RunOf("a-1")->End(JobState::kStopped, {}, table.now, table.events);
  CHECK(entry.ended());
  CHECK(table.jobs.Running().size() == 1);
  CHECK(table.jobs.FirstEnd() == Instant::InfiniteFuture());
  table.jobs.NoteEnded(entry);
  CHECK(table.jobs.Running().empty());
  CHECK(table.jobs.FirstEnd() == table.now);
  CHECK(entry.state() == JobState::kStopped);
}

TEST_CASE("Job table: beyond their number the oldest ended jobs go, beyond their age all",
          "[scheduler][core]") {
  Table table;
  const Instant begin = table.now;
  for (const char* id : {"a-1", "b-2", "c-3", "runs-4"}) table.Add(PlanOf(id));
  for (const char* id : {"c-3", "b-2", "a-1"}) {
    table.now = table.now + absl::Seconds(1);
    table.StopUnstarted(id);
  }
  CHECK(table.jobs.Outdated(3, begin).empty());
  CHECK(table.jobs.Outdated(2, begin) == std::vector<JobId>{"a-1"});
  CHECK(table.jobs.Outdated(3, begin + absl::Seconds(2)) == std::vector<JobId>{"b-2", "c-3"});
  CHECK(table.jobs.Outdated(2, begin + absl::Seconds(1)) == std::vector<JobId>{"a-1", "c-3"});
  CHECK(table.jobs.FirstEnd() == begin + absl::Seconds(1));
  table.jobs.Remove("c-3");
  CHECK(table.jobs.FirstEnd() == begin + absl::Seconds(2));
  CHECK(table.jobs.Outdated(2, begin).empty());
}

TEST_CASE("Job table: a folder is taken until the job that writes into it ends",
          "[scheduler][core]") {
  Table table;
  table.Add(PlanOf("a-1"));
  const JobFolders folders = PlanOf("a-1").folders;
  CHECK_STATUS(table.jobs.CheckFolders(folders, table.now), absl::StatusCode::kFailedPrecondition,
               "which is PENDING");
  REQUIRE_OK(table.jobs.CheckFolders(folders, table.now, /*owner=*/"a-1"));
  REQUIRE_OK(table.jobs.CheckFolders(PlanOf("b-2").folders, table.now));
  table.Start("a-1");
  CHECK_STATUS(table.jobs.CheckFolders(folders, table.now), absl::StatusCode::kFailedPrecondition,
               "which is RUNNING");
  table.jobs.RunOf("a-1")->End(JobState::kStopped, {}, table.now, table.events);
  REQUIRE_OK(table.jobs.CheckFolders(folders, table.now));
}

TEST_CASE("Job table: a job of another cluster may be adopted if its id and folders are free",
          "[scheduler][core]") {
  Table table;
  table.Add(PlanOf("a-1"));
  CHECK_STATUS(table.jobs.CheckAdoption(PlanOf("a-1"), table.now), absl::StatusCode::kAlreadyExists,
               "a-1 is a job of this cluster already");
  JobPlan other = PlanOf("a-1");
  other.unique_id = "of another cluster";
  CHECK_STATUS(table.jobs.CheckAdoption(other, table.now), absl::StatusCode::kAlreadyExists,
               "another job of this cluster has the id a-1");
  other.id = "a-2";
  CHECK_STATUS(table.jobs.CheckAdoption(other, table.now), absl::StatusCode::kFailedPrecondition,
               "/out/a-1");
  REQUIRE_OK(table.jobs.CheckAdoption(PlanOf("b-1"), table.now));
}

TEST_CASE("Job table: an adopted job is the newest, and its name's number is not given out again",
          "[scheduler][core]") {
  Table table;
  CHECK(table.jobs.TakeName() == 1);
  table.Add(PlanOf("b-1"));
  JobEntry& loaded = table.jobs.Load(PlanOf("a-7"));
  loaded.number = 1;  // The one that it had in the other cluster.
  table.jobs.TakeUp(loaded);
  CHECK(Table::Ids(table.jobs.All()) == std::vector<JobId>{"b-1", "a-7"});
  CHECK(Table::Ids(table.jobs.Running()) == std::vector<JobId>{"a-7"});
  CHECK(table.jobs.TakeName() == 8);
}

TEST_CASE("Job table: unloading a job leaves the ended job that has its number",
          "[scheduler][core]") {
  Table table;
  const JobEntry& ended = table.Add(PlanOf("b-1"));
  table.StopUnstarted("b-1");
  table.jobs.Load(PlanOf("a-7")).number = ended.number;
  table.jobs.Remove("a-7");
  CHECK(table.jobs.Find("a-7") == nullptr);
  CHECK(table.jobs.Outdated(0, table.now) == std::vector<JobId>{"b-1"});
}

TEST_CASE("Job table: a repeated submission finds its job", "[scheduler][core]") {
  Table table;
  JobPlan plan = PlanOf("a-1");
  table.Add(plan);
  CHECK(table.jobs.JobOfSubmission(0, "") == nullptr);  // Such a submission has no name.
  plan = PlanOf("b-2");
  plan.submission_id = 9;
  table.Add(plan);
  REQUIRE(table.jobs.JobOfSubmission(9, "") != nullptr);
  CHECK(*table.jobs.JobOfSubmission(9, "") == "b-2");
  CHECK(table.jobs.JobOfSubmission(8, "") == nullptr);
}

TEST_CASE("Job table: only a job that has started has a routing table", "[scheduler][core]") {
  Table table;
  for (const char* id : {"a-1", "b-2"}) table.Add(PlanOf(id));
  CHECK_STATUS(table.jobs.RoutingOf("c-3").status(), absl::StatusCode::kNotFound, "\"c-3\"");
  CHECK_STATUS(table.jobs.RoutingOf("a-1").status(), absl::StatusCode::kFailedPrecondition,
               "has not started yet");
  table.StopUnstarted("a-1");
  CHECK_STATUS(table.jobs.RoutingOf("a-1").status(), absl::StatusCode::kFailedPrecondition,
               "was stopped before it started");
  table.Start("b-2");
  REQUIRE_OK_AND_ASSIGN(const auto routing, table.jobs.RoutingOf("b-2"));
  CHECK(routing->job == "b-2");
  CHECK(ShardsOn(table.jobs, "server-1") == 1);
  CHECK(ShardsOn(table.jobs, "server-2") == 0);
}

TEST_CASE("Job table: a checkpoint stays while a job that begins with it has not ended",
          "[scheduler][core]") {
  using Pinned = std::vector<std::pair<CheckpointId, CheckpointId>>;
  Table table;
  JobPlan plan = PlanOf("a-1");
  plan.folders.checkpoints = "/checkpoints/a-1";
  table.Add(plan);
  table.Start("a-1");
  JobEntry& heir = table.Add(PlanOf("b-2"));
  heir.restore = RestoreFrom{.folder = "/checkpoints/a-1/checkpoint-5", .at = {}};
  heir.restore->id = CheckpointId(5);
  heir.restore->rests_on = CheckpointId(4);
  CHECK(table.jobs.CheckpointsToRemove("a-1").pinned.empty());  // It is of another folder.
  heir.restore->pinned_in = plan.folders.checkpoints;
  CHECK(table.jobs.CheckpointsToRemove("a-1").pinned == Pinned{{CheckpointId(4), CheckpointId(5)}});
  CHECK(table.jobs.CheckpointsToRemove("b-2").pinned.empty());  // It has no checkpoints yet.
  table.StopUnstarted("b-2");
  CHECK(table.jobs.CheckpointsToRemove("a-1").pinned.empty());
}

}  // namespace
}  // namespace capstan::scheduler::job_table_test
