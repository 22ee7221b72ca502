#include "scheduler/cli/view/progress.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>

namespace capstan::cli::progress_test {
namespace {

v1::JobStatus Status(const std::string& text) {
  v1::JobStatus status;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &status));
  return status;
}

v1::JobStatus Half() {
  return Status(R"(job_id: "lenet-1" state: RUNNING phase: "training" epoch: 2 epochs: 3
                   samples_done: 90000 samples_total: 180000 samples_per_second: 9000
                   loss: 0.5 accuracy: 0.8 staleness_counts: [5, 5, 1, 0])");
}

Instant At(int seconds) { return Instant::FromOrigin(absl::Seconds(seconds)); }

using Lines = std::vector<std::string>;

TEST_CASE("ProgressBar: shows share, rate, loss, accuracy, staleness and time left", "[cli]") {
  CHECK(ProgressBar(Half(), 140) ==
        "lenet-1  epoch 2/3  [###############---------------] 50 %  9,000 samples/s  loss 0.5000  "
        "accuracy 80.00 %  staleness <= 2  0:10 left");
}

TEST_CASE("ProgressBar: no accuracy where there is none", "[cli]") {
  v1::JobStatus job = Half();
  SECTION("its objective has none") { job.set_objective(v1::RATINGS); }
  SECTION("its program has counted none") { job.mutable_effective_spec()->mutable_program(); }
  job.clear_accuracy();
  CHECK(ProgressLine(job) ==
        "lenet-1  epoch 2/3  50 %  9,000 samples/s  loss 0.5000  staleness <= 2  0:10 left");
}

TEST_CASE("ProgressBar: narrow terminals shorten the bar, then do without it", "[cli]") {
  CHECK(ProgressBar(Half(), 110) ==
        "lenet-1  epoch 2/3  [####----] 50 %  9,000 samples/s  loss 0.5000  accuracy 80.00 %  "
        "staleness <= 2  0:10 left");
  // Issue 21: at 80 columns accuracy and time left were cut, but a bar of 5 characters stayed.
  CHECK(ProgressBar(Half(), 79) ==
        "lenet-1  epoch 2/3  50 %  loss 0.5000  accuracy 80.00 %  0:10 left");
  CHECK(ProgressBar(Half(), 55) == "lenet-1  epoch 2/3  50 %  accuracy 80.00 %  0:10 left");
  for (int columns = 0; columns < 160; ++columns) {
    CHECK(static_cast<int>(ProgressBar(Half(), columns).size()) <= columns);
  }
}

TEST_CASE("ProgressBar: a job that has just started and one that overshoots", "[cli]") {
  CHECK(ProgressBar(Status("job_id: 'a-1' state: RUNNING phase: 'starting' epochs: 2 "
                           "samples_total: 100"),
                    80) == "a-1  epoch 1/2  [------------------------------] 0 %  starting");
  v1::JobStatus over = Half();
  over.set_samples_done(999999);
  CHECK_THAT(ProgressBar(over, 200), Catch::Contains("[##############################] 100 %"));
}

TEST_CASE("ProgressView: in a pipe progress is told at most once an interval", "[cli]") {
  ProgressView view({.terminal = false, .line_interval = absl::Seconds(5)});
  const Lines line = {
      "lenet-1  epoch 2/3  50 %  9,000 samples/s  loss 0.5000  accuracy 80.00 %  "
      "staleness <= 2  0:10 left"};
  CHECK(view.Step(Half(), At(0)).lines == line);
  CHECK(view.Step(Half(), At(4)).lines == Lines{});
  CHECK(view.Step(Half(), At(5)).lines == line);
  CHECK(view.Step(Half(), At(6)).bar == "");
}

TEST_CASE("ProgressView: each finished epoch is told once", "[cli]") {
  ProgressView view({.terminal = true, .columns = 200});
  v1::JobStatus job = Half();
  CHECK(view.Step(job, At(0)).lines == Lines{});
  auto* result = job.add_results();
  result->set_epoch(1);
  result->set_train_loss(0.5);
  result->set_seconds(3);
  CHECK(view.Step(job, At(1)).lines ==
        Lines{"epoch 1/3  train loss 0.5000  train accuracy 0.00 %  3.0 s"});
  CHECK(view.Step(job, At(2)).lines == Lines{});
  CHECK_THAT(view.Step(job, At(2)).bar, Catch::StartsWith("lenet-1  epoch 2/3  ["));
}

TEST_CASE("ProgressView: a pending job's reason is told when it changes", "[cli]") {
  ProgressView view({.terminal = true});
  v1::JobStatus job = Status("job_id: 'a-1' state: PENDING detail: 'needs 4 workers, 2 are free'");
  CHECK(view.Step(job, At(0)).lines == Lines{"a-1 PENDING: needs 4 workers, 2 are free"});
  CHECK(view.Step(job, At(1)).lines == Lines{});
  job.set_detail("needs 4 workers, 3 are free");
  CHECK(view.Step(job, At(2)).lines == Lines{"a-1 PENDING: needs 4 workers, 3 are free"});
}

TEST_CASE("ProgressView: that a model is kept is told once, with what to do", "[cli]") {
  ProgressView view({.terminal = true});
  v1::JobStatus job = Half();
  job.set_detail("the model cannot be written to /out; it is kept for 59m more");
  CHECK(view.Step(job, At(0)).lines == Lines{});
  job.set_model_kept_until_unix_ms(77);
  CHECK(view.Step(job, At(1)).lines ==
        Lines{"lenet-1: the model cannot be written to /out; it is kept for 59m more"});
  job.set_detail("the model cannot be written to /out; it is kept for 58m more");
  CHECK(view.Step(job, At(2)).lines == Lines{});
  job.set_model_kept_until_unix_ms(0);  // The model is exported, and fails again.
  CHECK(view.Step(job, At(3)).lines == Lines{});
  job.set_model_kept_until_unix_ms(78);
  CHECK(view.Step(job, At(4)).lines.size() == 1);
}

TEST_CASE("ProgressView: each event is told once, also when older ones are forgotten", "[cli]") {
  ProgressView view({.terminal = true});
  v1::JobStatus job = Half();
  const auto add = [&job](const char* node) {
    v1::JobEvent& event = *job.add_events();
    event.set_kind(v1::JobEvent::SERVER_LOST);
    event.set_node_id(node);
    event.set_text("it died");
  };
  const auto nodes = [&](int second) {
    std::vector<std::string> told;
    for (const std::string& line : view.Step(job, At(second)).lines) {
      const size_t begin = line.find("server-");
      if (begin != std::string::npos) told.push_back(line.substr(begin, 8));
    }
    return told;
  };
  add("server-1");
  add("server-2");
  CHECK(nodes(0) == Lines{"server-1", "server-2"});
  CHECK(nodes(1) == Lines{});
  add("server-3");
  job.mutable_events()->DeleteSubrange(0, 1);
  job.set_events_forgotten(1);
  CHECK(nodes(2) == Lines{"server-3"});
  add("server-4");
  job.set_state(v1::FAILED);  // The last events of a job are shown, too.
  CHECK(nodes(3) == Lines{"server-4"});
}

TEST_CASE("ProgressView: restarts are told, and an ended job has no bar", "[cli]") {
  ProgressView view({.terminal = true});
  v1::JobStatus job = Half();
  job.set_restarts(1);
  job.mutable_effective_spec()->mutable_resources()->set_max_restarts(3);
  CHECK(view.Step(job, At(0)).lines == Lines{"a task was restarted (1 of 3 allowed)"});
  job.set_state(v1::FAILED);
  const ProgressView::Update end = view.Step(job, At(1));
  CHECK(end.lines == Lines{});
  CHECK(end.bar == "");
}

}  // namespace
}  // namespace capstan::cli::progress_test
