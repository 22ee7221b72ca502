// JobFixture: a job with two servers, driven by hand. The first process of rank r has incarnation
// 10 + r, the next one 20 + r. Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_TESTING_JOB_FIXTURE_H_
#define CAPSTAN_SCHEDULER_CORE_TESTING_JOB_FIXTURE_H_

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/metrics/score_counts.h"
#include "common/testing/status_matchers.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/job/job_run.h"
#include "scheduler/core/job/view_of_job.h"

namespace capstan::scheduler::testing {

struct JobFixture {
  explicit JobFixture(ConsistencyMode mode, int workers = 2, int64_t test_count = 0,
                      Objective objective = Objective::kClasses,
                      std::optional<RestoreFrom> restore = std::nullopt, bool log = false,
                      const DecisionPlan& decide = {}, bool own_pace = false,
                      int64_t ttl_seconds = 0) {
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

  // Begins the job, or begins it anew after a test has changed `plan`.
  void Begin(std::optional<RestoreFrom> restore = std::nullopt) {
    const Term term = restore ? JobRun::kRestoreTerm : Term(1);
    auto routing = std::make_shared<const Routing>(
        PlaceShards(plan.id, Generation(term.value()), plan.tables,
                    {{"server-1", "h:1", Incarnation(1)}, {"server-2", "h:2", Incarnation(2)}}));
    run = std::make_unique<JobRun>(plan, routing, JobRun::Options{}, now, std::move(restore));
    incarnations.assign(8, 0);
    for (int rank = 0; rank < plan.workers; ++rank) Place(rank);
  }

  // Its tasks run programs at their own pace.
  static JobFixture AtOwnPace(int workers = 2, std::optional<RestoreFrom> restore = std::nullopt) {
    return JobFixture(ConsistencyMode::kAsp, workers, /*test_count=*/0, Objective::kClasses,
                      std::move(restore), /*log=*/false, /*decide=*/{}, /*own_pace=*/true);
  }

  void Place(int rank) {
    const int incarnation = ++incarnations[static_cast<size_t>(rank)];
    run->PlaceTask(Rank(rank), Incarnation(incarnation * 10 + rank), Node(rank), "w:1", now,
                   events);
  }
  static std::string Node(int rank) { return absl::StrCat("worker-", rank); }
  TaskKey Key(int rank) const {
    return {"job-1", Rank(rank), Incarnation(incarnations[static_cast<size_t>(rank)] * 10 + rank)};
  }
  const Assignment& Of(int rank) const { return run->parts().tasks.at(Rank(rank)).assignment; }

  // A server says that it has applied the newest state.
  void Apply(const std::string& server) {
    run->OnTableReport(server,
                       {"job-1",
                        run->parts().routing->generation,
                        run->parts().members.membership().generation,
                        {}},
                       now, events);
  }
  void ApplyAll() {
    for (int i = 0; i < 3; ++i) {  // Listed, active.
      Apply("server-1");
      Apply("server-2");
    }
  }
  TaskReport Base(int rank) const {
    TaskReport report;
    report.task = Key(rank);
    report.assignment_seen = Of(rank).generation;
    report.routing_seen = Generation(1);
    report.iterations = run->parts().tasks.at(Rank(rank)).iterations;
    report.totals = run->parts().tasks.at(Rank(rank)).totals;
    return report;
  }
  absl::Status Send(const TaskReport& report) {
    const absl::Status status = run->OnTaskReport(report, now, events);
    if (shell_publishes) Publish();
    return status;
  }
  // The shell moves the model to its place, if there is one to be moved.
  void Publish(const absl::Status& status = absl::OkStatus()) {
    const auto model = run->TakeFiles().model;
    if (model) run->OnModelPublished(model->exporter, status, now, events);
  }
  void Hello(int rank) { REQUIRE_OK(Send(Base(rank))); }
  // Everything assigned is done.
  void Finish(int rank, double loss = 1.0, int64_t correct = 1, float click_score = 0) {
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
  // One click in ten; the others score 0.
  static ScoreCounts Scores(const Range& positions, float click_score) {
    ScoreCounts scores;
    for (int64_t i = positions.begin; i < positions.end; ++i) {
      scores.Add(i % 10 == 0 ? click_score : 0, i % 10 == 0);
    }
    return scores;
  }
  void Exit(int rank, int code) {
    run->OnTaskExited(Key(rank), {.exit_code = code, .signal = 0, .last_lines = ""},
                      /*node_leaving=*/false, now, events);
  }
  void Died(const std::string& node) {
    run->OnNodesDied({{node, "no sync for 3s", now}}, now, events);
  }
  void Start() {
    ApplyAll();
    for (int rank = 0; rank < plan.workers; ++rank) Hello(rank);
    ApplyAll();
  }
  void Advance(absl::Duration step) {
    now = now + step;
    run->Tick(now, events);
  }
  JobView View() const { return ViewOf(run->parts(), now); }
  JobPhase phase() const { return *View().phase; }
  template <typename T>
  std::vector<T> Seen() const {
    std::vector<T> found;
    for (const Event& event : events) {
      if (const T* match = std::get_if<T>(&event)) found.push_back(*match);
    }
    return found;
  }

  JobPlan plan;
  Instant now = Instant::FromOrigin(absl::Seconds(100));
  Events events;
  bool shell_publishes = true;  // At once.
  std::unique_ptr<JobRun> run;
  std::vector<int> incarnations = std::vector<int>(8, 0);
};

}  // namespace capstan::scheduler::testing

#endif  // CAPSTAN_SCHEDULER_CORE_TESTING_JOB_FIXTURE_H_
