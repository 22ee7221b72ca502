#include "scheduler/cli/view/job_view.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "scheduler/cli/view/text/format.h"

namespace capstan::cli::job_view_test {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

v1::JobStatus Running() {
  return Parse<v1::JobStatus>(R"text(
    job_id: "lenet-1" state: RUNNING phase: "training" mode: "ssp(2)" detail: "trains epoch 2 of 3"
    submitted_unix_ms: 1000000 started_unix_ms: 1010000
    epoch: 2 epochs: 3 iteration: 1400 samples_done: 90000 samples_total: 180000
    samples_per_second: 8412 loss: 0.5 accuracy: 0.8
    staleness_counts: [10, 20, 10]
    output_directory: "/out"
    model_directory: "/out"
    output_host: "node-1"
    tasks { rank: 0 node_id: "worker-1" state: "training" iteration: 700 samples_total: 45000
            last_report_ms: 120 }
    tasks { rank: 1 node_id: "worker-2" state: "waiting" iteration: 702 samples_total: 45000
            last_report_ms: 80
            wait { what: "pull" iteration: 702 waited_ms: 3200 peer: "server-1"
                   waiting_on { iteration: 699 ranks: 0 } } }
    results { epoch: 1 train_loss: 0.7 train_accuracy: 0.75 test_loss: 0.6 test_accuracy: 0.79
              test_samples: 10000 seconds: 12.5 }
  )text");
}

TEST_CASE("DescribeJob: shows state, progress, who waits for whom, and results", "[cli]") {
  setenv("TZ", "UTC", 1);
  CHECK(DescribeJob(Running(), absl::FromUnixMillis(1030000)) ==
        "job        lenet-1\n"
        "state      RUNNING, training\n"
        "detail     trains epoch 2 of 3\n"
        "mode       ssp(2)\n"
        "submitted  1970-01-01 00:16:40\n"
        "started    1970-01-01 00:16:50, ran 20 s\n"
        "progress   90,000 of 180,000 samples (50 %), iteration 1,400, 8,412 samples/s\n"
        "training   loss 0.5000, accuracy 80.00 %\n"
        "staleness  mean 1.0, at most 2\n"
        "restarts   0\n"
        "output     /out on node-1\n"
        "\n"
        "RANK  NODE      STATE     ITERATION  SAMPLES  LAST REPORT  DETAIL\n"
        "   0  worker-1  training        700   45,000        0.1 s  -\n"
        "   1  worker-2  waiting         702   45,000        80 ms  pull at iteration 702 from "
        "server-1 for 3.2 s: needs iteration 699 of rank 0\n"
        "\n"
        "EPOCH  TRAIN LOSS  TRAIN ACCURACY  TEST LOSS  TEST ACCURACY  TIME\n"
        "    1      0.7000         75.00 %     0.6000        79.00 %  12 s\n");
}

TEST_CASE("DescribeJob: says which GPUs its tasks have, if any has one", "[cli]") {
  v1::JobStatus job = Running();
  job.mutable_tasks(0)->add_gpus(0);
  job.mutable_tasks(0)->add_gpus(3);
  const std::string text = DescribeJob(job, absl::FromUnixMillis(1030000));
  CHECK_THAT(text, Catch::Contains("RANK  NODE      GPUS  STATE "));
  CHECK_THAT(text, Catch::Contains("   0  worker-1  0,3   training"));
  CHECK_THAT(text, Catch::Contains("   1  worker-2  -     waiting"));
}

TEST_CASE("DescribeJob: says how far a task is that prepares or exports", "[cli]") {
  v1::JobStatus job = Running();
  v1::TaskStatus& task = *job.mutable_tasks(0);
  task.set_state("exporting");
  task.mutable_activity()->set_what("bytes written");
  task.mutable_activity()->set_done(1234567);
  CHECK_THAT(DescribeJob(job, absl::FromUnixMillis(1030000)),
             Catch::Contains("worker-1  exporting        700   45,000        0.1 s  "
                             "1,234,567 bytes written\n"));
}

TEST_CASE("DescribeJob: a failed job names its reason and the first error", "[cli]") {
  const auto job = Parse<v1::JobStatus>(R"text(
    job_id: "a-1" state: FAILED
    failure { reason: DIVERGED message: "layer \"fc\": loss is NaN" })text");
  CHECK(DescribeJob(job, absl::UnixEpoch()) ==
        "job        a-1\n"
        "state      FAILED\n"
        "reason     Diverged: layer \"fc\": loss is NaN\n"
        "submitted  -\n"
        "restarts   0\n");
}

TEST_CASE("DescribeWait: names whom each kind of wait is on", "[cli]") {
  CHECK(DescribeWait({}) == "");
  CHECK(DescribeWait(Parse<v1::Wait>("what: 'lease' iteration: 3 waited_ms: 100")) ==
        "lease at iteration 3 for 0.1 s");
  CHECK(DescribeWait(Parse<v1::Wait>("what: 'pull' iteration: 8 waited_ms: 12000 peer: 's'"
                                     "waiting_on { iteration: 7 slots: [1, 3] }")) ==
        "pull at iteration 8 from s for 12 s: needs slots 1, 3 of iteration 7");
  v1::Wait many = Parse<v1::Wait>("what: 'pull' waiting_on { iteration: 7 }");
  for (int rank = 0; rank < 20; ++rank) many.mutable_waiting_on(0)->add_ranks(rank);
  CHECK(DescribeWait(many) ==
        "pull at iteration 0 for 0.0 s: needs iteration 7 of ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 "
        "more");
}

TEST_CASE("JobTable: a row a job, and a hint when there is none", "[cli]") {
  v1::ListJobsResponse jobs;
  CHECK(JobTable(jobs, absl::UnixEpoch()) == "No jobs. Submit one: capstan job submit FILE\n");
  *jobs.add_jobs() = Running();
  *jobs.add_jobs() = Parse<v1::JobStatus>(
      "job_id: 'b-2' state: PENDING mode: 'bsp' epochs: 5 detail: 'needs 4 workers, 2 are free'");
  CHECK(JobTable(jobs, absl::FromUnixMillis(1030000)) ==
        "JOB      STATE    MODE    EPOCH  DONE    LOSS  ACCURACY  TIME  DETAIL\n"
        "lenet-1  RUNNING  ssp(2)    2/3  50 %  0.5000   80.00 %  20 s  trains epoch 2 of 3\n"
        "b-2      PENDING  bsp       0/5     -       -         -     -  needs 4 workers, 2 are "
        "free\n");
  jobs.mutable_jobs(0)->set_owner("user/ann");
  CHECK_THAT(JobTable(jobs, absl::FromUnixMillis(1030000)),
             Catch::StartsWith("JOB      OWNER     STATE    MODE ") &&
                 Catch::Contains("\nlenet-1  user/ann  RUNNING  ssp(2) ") &&
                 Catch::Contains("\nb-2      -         PENDING  bsp "));
  CHECK_THAT(DescribeJob(jobs.jobs(0), absl::FromUnixMillis(1030000)),
             Catch::Contains("\nowner      user/ann\n"));
}

TEST_CASE("JobTable: a wide table has times, folder, labels and note", "[cli]") {
  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = Parse<v1::JobStatus>(
      "job_id: 'b-2' state: PENDING mode: 'bsp' epochs: 5 output_directory: '/out' "
      "output_host: 'h1' labels { key: 'team' value: 'ads' } labels { key: 'a' value: '1' } "
      "note: 'for the paper'");
  CHECK(JobTable(jobs, absl::UnixEpoch(), Columns::kWide) ==
        "JOB  STATE    MODE  EPOCH  DONE  LOSS  ACCURACY  TIME  SUBMITTED  ENDED  OUTPUT      "
        "LABELS        NOTE           DETAIL\n"
        "b-2  PENDING  bsp     0/5     -     -         -     -  -          -      /out on h1  "
        "a=1,team=ads  for the paper  -\n");
  const std::string described = DescribeJob(jobs.jobs(0), absl::UnixEpoch());
  CHECK_THAT(described, Catch::Contains("labels     a=1,team=ads\nnote       for the paper\n"));
}

TEST_CASE("DescribeJob: the events come last", "[cli]") {
  const auto job = Parse<v1::JobStatus>(
      "job_id: 'a-1' events { kind: SERVER_LOST node_id: 's-1' text: 'it died' count: 1 }");
  CHECK_THAT(DescribeJob(job, absl::UnixEpoch()),
             Catch::EndsWith("TIME  NODE  EVENT        TIMES  WHAT HAPPENED\n"
                             "-     s-1   server lost      1  it died\n"));
}

TEST_CASE("DescribeRows: tells the share of rows that did not travel, if any are kept", "[cli]") {
  v1::JobStatus job = Running();
  CHECK(DescribeRows(job).empty());
  job.set_rows_pulled(1000);
  CHECK(DescribeRows(job) == "0 % of 1,000 rows were kept by their worker");
  job.set_rows_cached(3000);
  CHECK_THAT(DescribeJob(job, absl::FromUnixMillis(1030000)),
             Catch::Contains("\nrow cache  75 % of 4,000 rows were kept by their worker\n"));
}

TEST_CASE("DescribeJob: a model that is kept has its folder, host and time", "[cli]") {
  v1::JobStatus job = Running();
  const auto describe = [&job] { return DescribeJob(job, absl::FromUnixMillis(1030000)); };
  CHECK_THAT(describe(), !Catch::Contains("\nmodel "));  // The output folder gets the model.
  job.set_model_directory("/new");
  job.set_model_kept_until_unix_ms(1052000);
  CHECK_THAT(describe(), Catch::Contains("\nmodel      /new on node-1\nkept until "));
}

TEST_CASE("EndSummary: a success names accuracy and files, a failure reason and logs", "[cli]") {
  v1::JobStatus job = Running();
  job.set_state(v1::SUCCEEDED);
  job.set_ended_unix_ms(1052000);
  job.clear_detail();
  CHECK(EndSummary(job) ==
        "lenet-1 SUCCEEDED after 42 s\n"
        "  test       accuracy 79.00 %, loss 0.6000 on 10,000 samples, epoch 1\n"
        "  staleness  mean 1.0, at most 2\n"
        "  model      /out/model.safetensors on node-1\n"
        "  curve      /out/curve.svg on node-1\n"
        "  metrics    /out/metrics.jsonl on node-1\n");
  CHECK(EndSummary(Parse<v1::JobStatus>(
            "job_id: 'a-1' state: FAILED failure { reason: BAD_DATA message: 'f: truncated' }")) ==
        "a-1 FAILED\n"
        "  reason     BadData: f: truncated\n"
        "  logs       capstan job logs a-1\n");
}

TEST_CASE("EpochLine: test figures only where there was a test", "[cli]") {
  CHECK(EpochLine(Running().results(0), Running()) ==
        "epoch 1/3  train loss 0.7000  train accuracy 75.00 %  test loss 0.6000  test accuracy "
        "79.00 %  12 s");
  CHECK(EpochLine(Parse<v1::EpochResult>("epoch: 3 train_loss: 1 seconds: 1"), Running()) ==
        "epoch 3/3  train loss 1.0000  train accuracy 0.00 %  1.0 s");
}

// Returns a job of another objective, with a result that has its figure.
v1::JobStatus JobOf(v1::Objective objective, const std::string& figure) {
  v1::JobStatus job = Running();
  job.clear_tasks();
  job.set_objective(objective);
  if (!HasAccuracy(objective)) job.clear_accuracy();
  v1::EpochResult& result = *job.mutable_results(0);
  if (!HasAccuracy(objective)) result.clear_train_accuracy();
  if (!HasAccuracy(objective)) result.clear_test_accuracy();
  result.MergeFrom(Parse<v1::EpochResult>(figure));
  return job;
}

TEST_CASE("Job views: a job that predicts clicks shows its AUC, or that there is none", "[cli]") {
  const v1::JobStatus job = JobOf(v1::CLICKS, "test_auc: 0.8125");
  CHECK(EpochLine(job.results(0), job) ==
        "epoch 1/3  train loss 0.7000  train accuracy 75.00 %  test loss 0.6000  test accuracy "
        "79.00 %  test AUC 0.8125  12 s");
  CHECK_THAT(EpochLine(JobOf(v1::CLICKS, "").results(0), job), Catch::Contains("  test AUC -  12"));
  CHECK_THAT(DescribeJob(job, absl::UnixEpoch()),
             Catch::EndsWith(
                 "EPOCH  TRAIN LOSS  TRAIN ACCURACY  TEST LOSS  TEST ACCURACY  TEST AUC  TIME\n"
                 "    1      0.7000         75.00 %     0.6000        79.00 %    0.8125  12 s\n"));
  CHECK_THAT(EndSummary(job), Catch::Contains("test       AUC 0.8125, accuracy 79.00 %, loss "
                                              "0.6000 on 10,000 samples, epoch 1\n"));
}

TEST_CASE("Job views: a job that predicts ratings shows its RMSE and no accuracy", "[cli]") {
  const v1::JobStatus job = JobOf(v1::RATINGS, "test_rmse: 0.7746");
  CHECK(EpochLine(job.results(0), job) ==
        "epoch 1/3  train loss 0.7000  test loss 0.6000  test RMSE 0.7746  12 s");
  const std::string text = DescribeJob(job, absl::UnixEpoch());
  CHECK_THAT(text, Catch::Contains("training   loss 0.5000\n"));
  CHECK_THAT(text, Catch::EndsWith("EPOCH  TRAIN LOSS  TEST LOSS  TEST RMSE  TIME\n"
                                   "    1      0.7000     0.6000     0.7746  12 s\n"));
  CHECK_THAT(EndSummary(job), Catch::Contains("test       RMSE 0.7746, loss 0.6000 on 10,000"));
}

TEST_CASE("Job views: a job that predicts words shows its loss alone", "[cli]") {
  const v1::JobStatus job = JobOf(v1::WORDS, "");
  CHECK(EpochLine(job.results(0), job) == "epoch 1/3  train loss 0.7000  test loss 0.6000  12 s");
  CHECK_THAT(DescribeJob(job, absl::UnixEpoch()),
             Catch::EndsWith("EPOCH  TRAIN LOSS  TEST LOSS  TIME\n"
                             "    1      0.7000     0.6000  12 s\n"));
  CHECK_THAT(EndSummary(job), Catch::Contains("test       loss 0.6000 on 10,000 samples"));
}

TEST_CASE("Job views: samples of which a program has counted none as correct have no accuracy",
          "[cli]") {
  v1::JobStatus job = JobOf(v1::CLASSES, "");
  job.mutable_effective_spec()->mutable_program();
  v1::EpochResult& result = *job.mutable_results(0);
  CHECK_THAT(EpochLine(result, job),
             Catch::Contains("train accuracy 75.00 %") && Catch::Contains("test accuracy 79.00 %"));
  job.set_accuracy(0);
  result.set_train_accuracy(0);
  CHECK_THAT(EpochLine(result, job),
             Catch::Contains("train accuracy -") && Catch::Contains("test accuracy 79.00 %"));
  CHECK_THAT(DescribeJob(job, absl::UnixEpoch()), Catch::Contains("training   loss 0.5000\n") &&
                                                      Catch::Contains(" - ") &&
                                                      Catch::Contains("79.00 %"));
  result.set_train_accuracy(0.75);
  result.set_test_accuracy(0);
  CHECK_THAT(EndSummary(job), Catch::Contains("test       accuracy -, loss 0.6000 on 10,000"));
}

TEST_CASE("Job views: numbers and several labels have their figures", "[cli]") {
  const v1::JobStatus numbers = JobOf(v1::NUMBERS, "test_rmse: 0.5 test_mae: 0.25");
  CHECK(EpochLine(numbers.results(0), numbers) ==
        "epoch 1/3  train loss 0.7000  test loss 0.6000  test RMSE 0.5000  test MAE 0.2500  12 s");
  const v1::JobStatus labels = JobOf(v1::LABELS, "test_auc: 0.75 test_f1: 0.625");
  CHECK(EpochLine(labels.results(0), labels) ==
        "epoch 1/3  train loss 0.7000  test loss 0.6000  test AUC 0.7500  test F1 0.6250  12 s");
}

TEST_CASE("Job views: a validation split has the figures of epochs, the test those of the model",
          "[cli]") {
  v1::JobStatus job = JobOf(v1::CLASSES, "");
  v1::EpochResult& result = *job.mutable_results(0);
  *result.mutable_validation() =
      Parse<v1::Evaluation>("samples: 30 loss: 0.5 accuracy: 0.8 top5_accuracy: 0.9");
  result.set_learning_rate_factor(0.25);
  job.set_best_epoch(1);
  CHECK_THAT(EpochLine(result, job), Catch::Contains("validation loss 0.5000  validation accuracy "
                                                     "80.00 %") &&
                                         Catch::Contains("rate x0.25"));
  CHECK_THAT(EndSummary(job),
             Catch::Contains("accuracy 80.00 %, loss 0.5000, top-5 accuracy 90.00 % on 30"));
  CHECK_THAT(DescribeJob(job, absl::UnixEpoch()),
             Catch::Contains("VALIDATION LOSS") && Catch::Contains("TEST LOSS"));
  result.set_test_samples(0);
  CHECK_THAT(DescribeJob(job, absl::UnixEpoch()), !Catch::Contains("TEST LOSS"));
}

TEST_CASE("JobTable: AUC and RMSE have a column where a job tells them", "[cli]") {
  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = JobOf(v1::CLICKS, "test_auc: 0.8125");
  CHECK(JobTable(jobs, absl::FromUnixMillis(1030000)) ==
        "JOB      STATE    MODE    EPOCH  DONE    LOSS  ACCURACY  TEST AUC  TIME  DETAIL\n"
        "lenet-1  RUNNING  ssp(2)    2/3  50 %  0.5000   80.00 %    0.8125  20 s  trains epoch 2 "
        "of 3\n");
  *jobs.add_jobs() = JobOf(v1::RATINGS, "test_rmse: 0.7746");
  CHECK(JobTable(jobs, absl::FromUnixMillis(1030000)) ==
        "JOB      STATE    MODE    EPOCH  DONE    LOSS  ACCURACY  TEST AUC  TEST RMSE  TIME  "
        "DETAIL\n"
        "lenet-1  RUNNING  ssp(2)    2/3  50 %  0.5000   80.00 %    0.8125          -  20 s  "
        "trains epoch 2 of 3\n"
        "lenet-1  RUNNING  ssp(2)    2/3  50 %  0.5000         -         -     0.7746  20 s  "
        "trains epoch 2 of 3\n");
  // `job list` gets the jobs without results.
  for (v1::JobStatus& job : *jobs.mutable_jobs()) job.clear_results();
  CHECK_THAT(JobTable(jobs, absl::UnixEpoch()), !Catch::Contains("TEST"));
}

}  // namespace
}  // namespace capstan::cli::job_view_test
