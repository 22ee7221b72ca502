// Tests what a task's trace contains, and when it is written.
#include "worker/task/task_trace.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/data/testing/test_files.h"

namespace capstan::worker::task_trace_test {
namespace {

using Catch::Contains;
using Part = StepObserver::Part;

struct Fixture {
  explicit Fixture(int batches) {
    assignment.set_job_id("lenet-1");
    assignment.set_rank(2);
    assignment.set_incarnation(7);
    assignment.mutable_spec()->mutable_output()->set_directory(folder.Path(""));
    assignment.mutable_spec()->mutable_output()->set_trace_batches(batches);
  }
  std::unique_ptr<TaskTrace> Create() { return TaskTrace::Create(assignment, clock); }
  std::string file() const { return folder.Path("trace-2-7.json"); }
  std::string Text() const {
    std::ifstream in(file());
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static Instant At(int microseconds) { return Instant() + absl::Microseconds(microseconds); }

  testing::TemporaryFolder folder;
  v1::TaskAssignment assignment;
  ManualClock clock;
};

SendMessage Message(OpKind kind, int64_t iteration, std::initializer_list<int> shards) {
  SendMessage message;
  message.request = {.kind = kind, .iteration = Iteration(iteration)};
  for (const int shard : shards) {
    message.shards.push_back({.key = {TableId(0), ShardId(shard)}, .elements = {}});
  }
  return message;
}

TEST_CASE("Task trace: a job that asks for none has none", "[worker][task]") {
  CHECK(Fixture(0).Create() == nullptr);
}

TEST_CASE("Task trace: it is written once its batches are done, with what happened in them",
          "[worker][task]") {
  Fixture f(2);
  const auto trace = f.Create();
  REQUIRE(trace->Watches());
  trace->Ran(Part::kForward, "layer \"a\"", f.At(10), f.At(20));
  trace->Ran(Part::kBackward, "layer \"b\"", f.At(20), f.At(40));
  trace->Ran(Part::kUpload, "batch of 4", f.At(5), f.At(9));
  trace->Ran(Part::kDownload, "gradient [0, 8)", f.At(41), f.At(45));
  trace->Message(Message(OpKind::kPush, 3, {1, 2, 4}), f.At(30), f.At(70));
  trace->BatchDone();
  CHECK_FALSE(std::filesystem::exists(f.file()));
  trace->Message(Message(OpKind::kPull, 4, {1}), f.At(50), f.At(80));
  trace->Message(Message(OpKind::kPull, 4, {}), f.At(50), f.At(51));
  trace->Waited("servers", f.At(60), f.At(85));
  trace->BatchDone();
  CHECK_FALSE(trace->Watches());
  const std::string text = f.Text();
  for (const char* what :
       {"lenet-1/2", "layer \\\"a\\\"", "layer \\\"b\\\"", "batch of 4", "gradient [0, 8)",
        "table 0 shards 1-4 iteration 3", "table 0 shard 1 iteration 4", "nothing", "servers"}) {
    CHECK_THAT(text, Contains(what));
  }
  for (const char* track : {"forward", "backward", "upload", "download", "push", "pull", "wait"}) {
    CHECK_THAT(text, Contains("\"cat\":\"" + std::string(track) + "\""));
  }
}

TEST_CASE("Task trace: a task that ends early writes what it has, once", "[worker][task]") {
  Fixture f(100);
  const auto trace = f.Create();
  trace->Waited("servers", f.At(1), f.At(2));
  trace->Write();
  const std::string written = f.Text();
  CHECK_THAT(written, Contains("servers"));
  trace->Waited("too late", f.At(3), f.At(4));
  trace->Message(Message(OpKind::kPull, 9, {1}), f.At(3), f.At(4));
  trace->BatchDone();
  trace->Write();
  CHECK(f.Text() == written);
}

TEST_CASE("Task trace: a file that cannot be written does not stop the task", "[worker][task]") {
  Fixture f(1);
  const std::string none = f.folder.Path("none");
  f.assignment.mutable_spec()->mutable_output()->set_directory(none);
  std::ofstream(none) << "a file where a folder is wanted";
  const auto trace = f.Create();
  trace->BatchDone();
  CHECK_FALSE(trace->Watches());
  trace->BatchDone();
}

}  // namespace
}  // namespace capstan::worker::task_trace_test
