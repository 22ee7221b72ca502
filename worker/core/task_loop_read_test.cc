// Tests that TaskLoop obeys what a port reports about a pull's rows.
#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/core/task_loop.h"

namespace capstan::worker::task_loop_read_test {
namespace {

// A port whose calls all end at once; some pulls must be repeated.
class Port final : public TaskPort {
 public:
  explicit Port(std::vector<RowsRead> reads,
                const TaskBoard::Options& options = {.batch_size = 4,
                                                     .evaluation_batch_size = 8,
                                                     .train_samples = 8})
      : board(options), reads_(std::move(reads)) {
    board.Take(
        {.generation = Generation(1), .phase = Phase::kTrain, .samples = {{LeaseId(5), {0, 8}}}});
  }

  void UseBoard(const std::function<void(TaskBoard&)>& use) override { use(board); }
  bool Fenced() override { return fenced_; }
  void ReportSoon() override {}
  bool HasRouting() override { return true; }
  absl::StatusOr<OpId> Push(const Work& work) override { return Note("push", work); }
  absl::StatusOr<OpId> Pull(const Work& work, bool) override { return Note("pull", work); }
  void CancelPull(OpId) override { calls.push_back("cancel"); }
  RowsRead Pulled(const OpDone& done) override {
    CHECK(done.op == last_pull_);
    return next_ < reads_.size() ? reads_[next_++] : RowsRead();
  }
  bool Wait(OpId op, OpDone* done) override {
    *done = {.op = op};
    return true;
  }
  bool Forward(const Work& work, std::optional<OpId> pull, OpDone* done) override {
    calls.push_back(absl::StrCat("forward ", work.iteration.value(), pull ? "" : " again"));
    *done = {.op = pull.value_or(OpId())};
    if (arriving_) board.Take(*std::exchange(arriving_, std::nullopt));
    if (interrupt_ && std::exchange(interrupt_, false)) {
      done->status = absl::CancelledError("interrupted");
    }
    if (past_ && std::exchange(past_, false)) {
      done->status = absl::OutOfRangeError("past");
      done->oldest = Iteration(3);
    }
    return true;
  }
  void InterruptOnce() { interrupt_ = true; }
  void PastOnce() { past_ = true; }
  // This assignment comes during the next forward pass, too late to interrupt it.
  void AssignMeanwhile(const Assignment& assignment) { arriving_ = assignment; }
  bool WaitForWork() override {
    fenced_ = true;  // Ends the loop.
    return true;
  }
  bool Train(const Work& work, OpId, absl::StatusOr<WorkResult>* result) override {
    calls.push_back(absl::StrCat("train ", work.iteration.value()));
    *result = WorkResult{.samples = work.positions.size()};
    return true;
  }
  bool Evaluate(const Work&, absl::StatusOr<WorkResult>*) override { return true; }
  bool Export(const Work&, const std::map<TableId, Version>&, absl::Status*) override {
    return true;
  }

  TaskBoard board;
  std::vector<std::string> calls;

 private:
  OpId Note(const char* what, const Work& work) {
    calls.push_back(absl::StrCat(what, " ", work.iteration.value()));
    const OpId op(++ops_);
    if (std::string(what) == "pull") last_pull_ = op;
    return op;
  }

  std::vector<RowsRead> reads_;
  size_t next_ = 0;
  uint64_t ops_ = 0;
  OpId last_pull_;
  std::optional<Assignment> arriving_;
  bool fenced_ = false, interrupt_ = false, past_ = false;
};

using Calls = std::vector<std::string>;

TEST_CASE("TaskLoop: rows that may be too old are asked for again before they are used",
          "[worker][core]") {
  Port port({{.staleness = 2, .cached = 5, .pulled = 7},
             {.again = true, .staleness = 9, .cached = 99, .pulled = 99},
             {.staleness = 1, .cached = 0, .pulled = 12}});
  TaskLoop loop({.keyed = true, .early_pulls = true}, port);
  loop.Start();
  CHECK(port.calls == Calls{"pull 0", "forward 0", "push 0", "pull 1", "train 0", "forward 1",
                            "pull 1", "forward 1", "push 1", "train 1"});
  CHECK(port.board.totals().rows_cached == 5);
  CHECK(port.board.totals().rows_pulled == 19);
  CHECK(port.board.totals().staleness_counts == std::vector<int64_t>{0, 1, 1});
}

TEST_CASE("TaskLoop: the forward pass begins with the pull, before anything is pushed",
          "[worker][core]") {
  const bool early = GENERATE(false, true);
  Port port({});
  TaskLoop loop({.early_pulls = early}, port);
  SECTION("of each batch") {
    loop.Start();
    CHECK(port.calls == Calls{"pull 0", "forward 0", "push 0", "pull 1", "train 0", "forward 1",
                              "push 1", "train 1"});
  }
  SECTION("again for the same pull after an interrupt") {
    port.InterruptOnce();
    loop.Start();
    CHECK(port.calls == Calls{"pull 0", "forward 0", "forward 0", "push 0", "pull 1", "train 0",
                              "forward 1", "push 1", "train 1"});
  }
}

TEST_CASE("TaskLoop: nothing is pushed for an iteration that is past", "[worker][core]") {
  Port port({}, {.bsp = true, .slots = 2, .batch_size = 4, .train_samples = 400});
  port.board.Take({.generation = Generation(2),
                   .phase = Phase::kTrain,
                   .slots = {{SlotId(0), Iteration(0), Iteration(4)},
                             {SlotId(1), Iteration(3), Iteration(4)}}});
  port.PastOnce();
  TaskLoop loop({}, port);
  loop.Start();
  // The parameters of an iteration serve all of its slots.
  CHECK(port.calls == Calls{"pull 0", "forward 0", "pull 3", "forward 3", "push 3", "train 3",
                            "forward 3 again", "push 3", "train 3"});
}

TEST_CASE("TaskLoop: nothing is begun that was taken away during its forward pass",
          "[worker][core]") {
  Port port({});
  Assignment newer{
      .generation = Generation(2), .phase = Phase::kTrain, .samples = {{LeaseId(5), {0, 8}}}};
  SECTION("paused: who is idle stays idle until it may go on") {
    newer.paused = true;
    port.AssignMeanwhile(newer);
    TaskLoop loop({}, port);
    loop.Start();
    CHECK(port.calls == Calls{"pull 0", "forward 0"});
    CHECK(port.board.Idle());
  }
  SECTION("the lease is somebody else's") {
    newer.samples = {{LeaseId(6), {4, 8}}};
    port.AssignMeanwhile(newer);
    TaskLoop loop({}, port);
    loop.Start();
    CHECK(port.calls == Calls{"pull 0", "forward 0", "forward 0 again", "push 0", "train 0"});
    CHECK(port.board.totals().samples == 4);
  }
  SECTION("another lease more changes nothing") {
    newer.samples.push_back({LeaseId(6), {8, 12}});
    port.AssignMeanwhile(newer);
    TaskLoop loop({}, port);
    loop.Start();
    CHECK(port.board.totals().samples == 12);
    CHECK(std::count(port.calls.begin(), port.calls.end(), "forward 0") == 1);
  }
}

}  // namespace
}  // namespace capstan::worker::task_loop_read_test
