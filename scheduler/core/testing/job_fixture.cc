#include "scheduler/core/testing/job_fixture.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/job/view_of_job.h"

namespace capstan::scheduler::testing {

JobFixture::JobFixture(ConsistencyMode mode, int workers, int64_t test_count, Objective objective,
                       std::optional<RestoreFrom> restore, bool log, const DecisionPlan& decide,
                       bool own_pace, int64_t ttl_seconds) {
  plan.id = "job-1";
  plan.consistency.mode = mode;
  plan.workers = workers;
  plan.max_restarts = 1;
  plan.worker_wait = absl::Seconds(60);
  plan.epochs = 2;
  plan.batch_size = 10;
  plan.consistency.slots = 4;
  plan.train_count = 80;
  plan.test_count = test_count;
  plan.objective = objective;
  plan.tables = {1000};
  plan.export_path = "/out";
  plan.checkpoint_folder = "/checkpoints";
  plan.log = log;
  plan.decide = decide;
  plan.own_pace = own_pace;
  plan.ttl_seconds = ttl_seconds;
  if (own_pace) {
    plan.epochs = 1;
    plan.batch_size = 1;
    plan.train_count = workers;
  }
  Begin(std::move(restore));
}

void JobFixture::Begin(std::optional<RestoreFrom> restore) {
  const Term term = restore ? JobRun::kRestoreTerm : Term(1);
  auto routing = std::make_shared<const Routing>(
      PlaceShards(plan.id, Generation(term.value()), plan.tables,
                  {{"server-1", "h:1", Incarnation(1)}, {"server-2", "h:2", Incarnation(2)}}));
  run = std::make_unique<JobRun>(plan, routing, JobRun::Options{}, now, std::move(restore));
  incarnations.assign(8, 0);
  for (int rank = 0; rank < plan.workers; ++rank) Place(rank);
}

JobFixture JobFixture::AtOwnPace(int workers, std::optional<RestoreFrom> restore) {
  return JobFixture(ConsistencyMode::kAsp, workers, /*test_count=*/0, Objective::kClasses,
                    std::move(restore), /*log=*/false, /*decide=*/{}, /*own_pace=*/true);
}

void JobFixture::Place(int rank) {
  const int incarnation = ++incarnations[static_cast<size_t>(rank)];
  run->PlaceTask(Rank(rank), Incarnation(incarnation * 10 + rank), Node(rank), "w:1", now, events);
}

std::string JobFixture::Node(int rank) { return absl::StrCat("worker-", rank); }

TaskKey JobFixture::Key(int rank) const {
  return {"job-1", Rank(rank), Incarnation(incarnations[static_cast<size_t>(rank)] * 10 + rank)};
}

const Assignment& JobFixture::Of(int rank) const {
  return run->parts().tasks.at(Rank(rank)).assignment;
}

void JobFixture::Apply(const std::string& server) {
  run->OnTableReport(
      server,
      {"job-1", run->parts().routing->generation, run->parts().members.membership().generation, {}},
      now, events);
}

void JobFixture::ApplyAll() {
  for (int i = 0; i < 3; ++i) {  // Members are listed, then active.
    Apply("server-1");
    Apply("server-2");
  }
}

TaskReport JobFixture::Base(int rank) const {
  TaskReport report;
  report.task = Key(rank);
  report.assignment_seen = Of(rank).generation;
  report.routing_seen = Generation(1);
  report.iterations = run->parts().tasks.at(Rank(rank)).iterations;
  report.totals = run->parts().tasks.at(Rank(rank)).totals;
  return report;
}

absl::Status JobFixture::Send(const TaskReport& report) {
  const absl::Status status = run->OnTaskReport(report, now, events);
  if (shell_publishes) Publish();
  return status;
}

void JobFixture::Publish(const absl::Status& status) {
  const auto model = run->TakeFiles().model;
  if (model) run->OnModelPublished(model->exporter, status, now, events);
}

void JobFixture::Hello(int rank) { REQUIRE_OK(Send(Base(rank))); }

void JobFixture::Finish(int rank, double loss, int64_t correct, float click_score) {
  TaskReport report = Base(rank);
  for (const SlotLease& lease : Of(rank).slots) {
    report.slots.push_back({lease.slot, lease.end});
    report.totals.samples += 10 * (lease.end.value() - lease.begin.value());
  }
  for (const SampleLease& lease : Of(rank).samples) {
    report.samples.push_back({lease.id, lease.positions.end, loss, correct});
    if (click_score != 0) report.samples.back().scores = Scores(lease.positions, click_score);
    if (Of(rank).phase == TaskPhase::kTrain) {
      report.totals.samples += lease.positions.size();
      report.iterations = Iteration(report.iterations.value() + lease.positions.size() / 10);
    }
  }
  report.exported = Of(rank).phase == TaskPhase::kExport;
  report.idle = true;
  REQUIRE_OK(Send(report));
}

ScoreCounts JobFixture::Scores(const Range& positions, float click_score) {
  ScoreCounts scores;
  for (int64_t i = positions.begin; i < positions.end; ++i) {
    scores.Add(i % 10 == 0 ? click_score : 0, i % 10 == 0);
  }
  return scores;
}

void JobFixture::Exit(int rank, int code) {
  run->OnTaskExited(Key(rank), {.exit_code = code, .signal = 0, .last_lines = ""},
                    /*node_leaving=*/false, now, events);
}

void JobFixture::Died(const std::string& node) {
  run->OnNodesDied({{node, "no sync for 3s", now}}, now, events);
}

void JobFixture::Start() {
  ApplyAll();
  for (int rank = 0; rank < plan.workers; ++rank) Hello(rank);
  ApplyAll();
}

void JobFixture::Advance(absl::Duration step) {
  now = now + step;
  run->Tick(now, events);
}

JobView JobFixture::View() const { return ViewOf(run->parts(), now); }

JobPhase JobFixture::phase() const { return *View().phase; }

}  // namespace capstan::scheduler::testing
