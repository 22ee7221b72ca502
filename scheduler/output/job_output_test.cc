#include "scheduler/output/job_output.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/report/update_log.h"
#include "common/testing/status_matchers.h"
#include "scheduler/codec/job_figures.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/output/event_recorder.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::job_output_test {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Report SmallReport() {
  return {.job = "job-1",
          .epoch = Epoch(0),
          .iteration = 40,
          .samples_done = 2560,
          .samples = 640,
          .loss = 0.5,
          .accuracy = 0.75,
          .samples_per_second = 100,
          .staleness_counts = {3, 1}};
}

EpochDone SmallEpoch() {
  EpochDone done{.job = "job-1", .iteration = 50, .samples_done = 3200, .result = {}};
  done.result.test_samples = 20;
  done.result.test_loss = 0.25;
  done.result.test_accuracy = 0.5;
  return done;
}

TEST_CASE(
    "Job output: reports and evaluations become lines, and the curve is drawn after each epoch",
    "[scheduler]") {
  const testing::TemporaryFolder folder;
  REQUIRE_OK_AND_ASSIGN(const auto output,
                        JobOutput::Open(folder.path(), "job-1", "bsp", {Objective::kClasses}));
  REQUIRE_OK(output->Add(SmallReport(), 1000));
  CHECK(ReadFile(folder.path() + "/curve.svg") == "");
  REQUIRE_OK(output->Add(SmallEpoch(), 2000));
  std::istringstream lines(ReadFile(folder.path() + "/metrics.jsonl"));
  std::string train;
  std::string test;
  std::string rest;
  std::getline(lines, train);
  std::getline(lines, test);
  CHECK_THAT(train, Catch::Contains("\"phase\":\"train\"") && Catch::Contains("\"iteration\":40") &&
                        Catch::Contains("[3,1]"));
  CHECK_THAT(test, Catch::Contains("\"phase\":\"test\"") && Catch::Contains("\"accuracy\":0.5"));
  CHECK_FALSE(std::getline(lines, rest));
  CHECK_THAT(ReadFile(folder.path() + "/curve.svg"),
             Catch::Contains("<svg") && Catch::Contains("job-1"));
}

TEST_CASE("Job output: the curve goes on from the lines of an earlier scheduler", "[scheduler]") {
  const testing::TemporaryFolder folder;
  const std::string curve = folder.path() + "/curve.svg";
  {
    REQUIRE_OK_AND_ASSIGN(const auto output,
                          JobOutput::Open(folder.path(), "job-1", "bsp", {Objective::kClasses}));
    REQUIRE_OK(output->Add(SmallReport(), 1000));
    REQUIRE_OK(output->Add(SmallEpoch(), 2000));
  }
  const std::string before = ReadFile(curve);
  // Append a torn line, and a line of another job.
  std::ofstream(folder.path() + "/metrics.jsonl", std::ios::app)
      << "{\"job\":\"job-1\",\"pha\n{\"job\":\"job-11\",\"phase\":\"train\",\"iteration\":9999}\n";
  REQUIRE_OK_AND_ASSIGN(const auto output,
                        JobOutput::Open(folder.path(), "job-1", "bsp", {Objective::kClasses}));
  REQUIRE_OK(output->WriteCurve());
  CHECK(ReadFile(curve) == before);
}

// The lines of metrics.jsonl and the curve of a job with one report and one evaluation.
struct Written {
  Written(const JobFigures& figures, const EpochDone& done, const Report& report = SmallReport()) {
    const testing::TemporaryFolder folder;
    REQUIRE_OK_AND_ASSIGN(const auto output,
                          JobOutput::Open(folder.path(), "job-1", "asp", figures));
    REQUIRE_OK(output->Add(report, 1000));
    REQUIRE_OK(output->Add(done, 2000));
    lines = ReadFile(folder.path() + "/metrics.jsonl");
    curve = ReadFile(folder.path() + "/curve.svg");
    // An object that continues these files draws the same curve.
    REQUIRE_OK_AND_ASSIGN(const auto next, JobOutput::Open(folder.path(), "job-1", "asp", figures));
    REQUIRE_OK(next->WriteCurve());
    CHECK(ReadFile(folder.path() + "/curve.svg") == curve);
  }
  std::string lines;
  std::string curve;
};

TEST_CASE("Job output: clicks have their AUC on the test line, or null if there is none",
          "[scheduler]") {
  EpochDone done = SmallEpoch();
  done.result.test_auc = 0.8125;
  const Written written({Objective::kClicks}, done);
  CHECK_THAT(written.lines, Catch::Contains("\"loss\":0.5,\"accuracy\":0.75,\"samples") &&
                                Catch::Contains("\"accuracy\":0.5,\"auc\":0.8125,\"samples"));
  CHECK_THAT(written.curve, Catch::Contains("81.25 %") && Catch::Contains("test AUC"));
  const Written none({Objective::kClicks}, SmallEpoch());
  CHECK_THAT(none.lines, Catch::Contains("\"accuracy\":0.5,\"auc\":null,\"samples"));
  CHECK_THAT(none.curve, !Catch::Contains("AUC"));
}

TEST_CASE("Job output: a validation split has a line each epoch, and the test one at the end",
          "[scheduler]") {
  EpochDone done = SmallEpoch();
  done.result.test_samples = 0;
  done.result.validation =
      EvaluationFigures{.samples = 30, .loss = 0.125, .accuracy = 0.75, .top5_accuracy = 0.875};
  const Written written({Objective::kClasses}, done);
  CHECK_THAT(written.lines, Catch::Contains("\"phase\":\"validation\"") &&
                                Catch::Contains("\"loss\":0.125,\"accuracy\":0.75,"
                                                "\"top5_accuracy\":0.875,\"samples"));
  CHECK_THAT(written.curve, Catch::Contains("validation loss") && !Catch::Contains("test loss"));
  const testing::TemporaryFolder folder;
  REQUIRE_OK_AND_ASSIGN(const auto output,
                        JobOutput::Open(folder.path(), "job-1", "asp", {Objective::kClasses}));
  REQUIRE_OK(output->Add(ModelTested{"job-1", 40, SmallEpoch().result}, 3000));
  CHECK_THAT(ReadFile(folder.path() + "/metrics.jsonl"),
             Catch::Contains("\"phase\":\"test\"") && Catch::Contains("\"iteration\":40"));
}

TEST_CASE("Job output: numbers and several labels have their figures", "[scheduler]") {
  EpochDone done = SmallEpoch();
  done.result.test_rmse = 0.5;
  done.result.test_mae = 0.375;
  CHECK_THAT(Written({Objective::kNumbers}, done).lines,
             Catch::Contains("\"loss\":0.25,\"rmse\":0.5,\"mae\":0.375,\"samples"));
  done.result = SmallEpoch().result;
  done.result.test_f1 = 0.625;
  CHECK_THAT(Written({Objective::kLabels}, done).lines,
             Catch::Contains("\"loss\":0.25,\"auc\":null,\"f1\":0.625,\"samples"));
}

TEST_CASE("Job output: ratings have their RMSE, and neither they nor words an accuracy",
          "[scheduler]") {
  EpochDone done = SmallEpoch();
  done.result.test_rmse = 0.5;
  const Written ratings({Objective::kRatings}, done);
  CHECK_THAT(ratings.lines, Catch::Contains("\"loss\":0.25,\"rmse\":0.5,\"samples"));
  const Written words({Objective::kWords}, SmallEpoch());
  CHECK_THAT(words.lines, Catch::Contains("\"loss\":0.25,\"samples"));
  for (const Written& written : {ratings, words}) {
    CHECK_THAT(written.lines, !Catch::Contains("accuracy"));
    CHECK_THAT(written.curve, !Catch::Contains("accuracy") && Catch::Contains("test loss"));
  }
}

TEST_CASE("Job output: samples of which a program has counted none as correct have no accuracy",
          "[scheduler]") {
  const JobFigures program{Objective::kClasses, /*of_program=*/true};
  Report report = SmallReport();
  EpochDone done = SmallEpoch();
  const Written counted(program, done, report);
  CHECK_THAT(counted.lines,
             Catch::Contains("\"accuracy\":0.75,") && Catch::Contains("\"accuracy\":0.5,"));
  report.accuracy = 0;
  const Written tested(program, done, report);
  CHECK_THAT(tested.lines,
             Catch::Contains("\"loss\":0.5,\"samples") && Catch::Contains("\"accuracy\":0.5,"));
  CHECK_THAT(tested.curve,
             Catch::Contains("test accuracy") && !Catch::Contains("training accuracy"));
  done.result.test_accuracy = 0;
  const Written none(program, done, report);
  CHECK_THAT(none.lines, !Catch::Contains("accuracy"));
  CHECK_THAT(none.curve, !Catch::Contains("accuracy") && Catch::Contains("test loss"));
  const Written all_wrong({Objective::kClasses}, done, report);
  CHECK_THAT(all_wrong.lines, Catch::Contains("\"accuracy\":0,"));
}

TEST_CASE("Job output: the status is written as JSON with the names of the proto", "[scheduler]") {
  const testing::TemporaryFolder folder;
  REQUIRE_OK_AND_ASSIGN(const auto output,
                        JobOutput::Open(folder.path(), "job-1", "bsp", {Objective::kClasses}));
  v1::JobStatus status;
  status.set_job_id("job-1");
  status.mutable_spec()->mutable_training()->set_batch_size(64);
  REQUIRE_OK(output->WriteStatus(status));
  CHECK_THAT(ReadFile(folder.path() + "/job.json"),
             Catch::Contains("\"job_id\": \"job-1\"") && Catch::Contains("\"batch_size\": 64"));
  status.set_state(v1::SUCCEEDED);
  CHECK_FALSE(output->HasStatus(v1::SUCCEEDED));
  REQUIRE_OK(output->WriteStatus(status));
  CHECK(output->HasStatus(v1::SUCCEEDED));
  REQUIRE(std::filesystem::remove(folder.path() + "/job.json"));
  REQUIRE(mkfifo((folder.path() + "/job.json").c_str(), 0600) == 0);
  CHECK_FALSE(output->HasStatus(v1::SUCCEEDED));  // It does not wait for a writer.
}

TEST_CASE("Job output: metrics that lead to a device are not read", "[scheduler]") {
  const testing::TemporaryFolder folder;
  std::filesystem::create_symlink("/dev/zero", folder.path() + "/metrics.jsonl");
  REQUIRE_OK(JobOutput::Open(folder.path(), "job-1", "bsp", {Objective::kClasses}));
}

TEST_CASE("Job output: a folder that is gone is an error that names the file", "[scheduler]") {
  CHECK_STATUS(JobOutput::Open("/none/of/this", "job-1", "bsp", {Objective::kClasses}).status(),
               absl::StatusCode::kNotFound, "/none/of/this/metrics.jsonl");
}

TEST_CASE("Event recorder: a job's events end in its folder", "[scheduler]") {
  const testing::TemporaryFolder folder;
  auto job = std::make_shared<AdmittedJob>();
  job->plan.id = "job-1";
  job->output_directory = folder.path();
  v1::JobStatus status;
  status.set_job_id("job-1");
  const auto shared = std::make_shared<const v1::JobStatus>(status);
  EventRecorder recorder;
  recorder.Record({JobStarted{"job-1", {"server-1"}}, 1, job, shared});
  CHECK_THAT(ReadFile(folder.path() + "/job.json"), Catch::Contains("job-1"));
  recorder.Record({SmallReport(), 2, job, nullptr});
  recorder.Record({SmallEpoch(), 3, job, nullptr});
  recorder.Record(
      {JobEnded{"job-1", JobState::kFailed, {FailureReason::kHang, "why"}}, 4, job, shared});
  CHECK_THAT(ReadFile(folder.path() + "/metrics.jsonl"), Catch::Contains("\"test\""));
  CHECK_THAT(ReadFile(folder.path() + "/curve.svg"), Catch::Contains("<svg"));
}

TEST_CASE("Event recorder: recorded updates become lines with the names of their tables",
          "[scheduler]") {
  const testing::TemporaryFolder folder;
  auto job = std::make_shared<AdmittedJob>();
  job->plan.id = "job-1";
  job->plan.unique_id = "c1-ab";
  job->output_directory = folder.path();
  for (const char* name : {"parameters", "statistics"}) job->tables.emplace_back().set_name(name);
  UpdatesRecorded recorded{.task = {"job-1", Rank(3), Incarnation(9)}, .updates = {}};
  recorded.updates.push_back({.iteration = Iteration(7),
                              .epoch = Epoch(0),
                              .slot = SlotId(1),
                              .positions = {.begin = 16, .end = 32},
                              .tables = {{.table = 1, .parameters = 10, .gradient = 11},
                                         {.table = 2, .parameters = 12, .gradient = 13},
                                         {.table = -1, .parameters = 14, .gradient = 15}}});
  {
    EventRecorder recorder;
    recorder.Record({recorded, 1, job, nullptr});
    recorder.Record({recorded, 2, job, nullptr});
  }
  EventRecorder after_a_restart;
  after_a_restart.Record({recorded, 3, job, nullptr});
  REQUIRE_OK_AND_ASSIGN(const LoggedUpdates logged,
                        ReadUpdateLog(folder.path() + "/" + kUpdateLogName));
  CHECK(logged.table_names == std::vector<std::string>{"statistics"});
  REQUIRE(logged.updates.size() == 3);
  const TableUpdate& update = logged.updates[2];
  CHECK(update.iteration == 7);
  CHECK(update.epoch == 1);
  CHECK(update.slot == 1);
  CHECK(update.positions == Range{.begin = 16, .end = 32});
  CHECK(update.parameters == 10);
  CHECK(update.gradient == 11);
  CHECK(update.rank == 3);
}

}  // namespace
}  // namespace capstan::scheduler::job_output_test
