#include "worker/core/task_loop.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <coroutine>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace capstan::worker::task_loop_test {
namespace {

constexpr int kShards = 2;  // Shard s is on server s at first.

Routing RoutingOf(uint64_t generation, std::vector<int> primaries, std::vector<uint64_t> terms) {
  Routing routing{.generation = Generation(generation), .servers = {"alpha", "beta"}};
  for (int s = 0; s < kShards; ++s) {
    const auto i = static_cast<size_t>(s);
    routing.shards.push_back({.key = {TableId(0), ShardId(s)},
                              .elements = {s * 8, s * 8 + 8},
                              .server = primaries[i],
                              .term = Term(terms[i])});
  }
  return routing;
}

// Servers that hold two shards and, under BSP with replicas, answer a slot's push once the
// iteration has all of its slots. Committed pushes survive the servers' death.
class Servers {
 public:
  explicit Servers(int slots) : slots_(slots) {}  // 0: every push is applied at once.

  // A slot that another worker has computed.
  void Arrive(int64_t iteration, int64_t slot) {
    for (int s = 0; s < kShards; ++s) Record(static_cast<size_t>(s), iteration, slot);
  }
  void Kill(int server) {
    dead_.insert(server);
    for (int s = 0; s < kShards; ++s) {
      if (primaries_[static_cast<size_t>(s)] == server) arrived_[static_cast<size_t>(s)].clear();
    }
  }
  void Promote(int shard, int server) { primaries_[static_cast<size_t>(shard)] = server; }
  void Fence() { fenced_ = true; }

  void Take(const SendMessage& message) {
    if (message.request.kind == OpKind::kPush && !dead_.contains(message.server)) {
      for (const auto& shard : message.shards) {
        pushed.push_back(absl::StrCat(message.request.iteration.value(), "/",
                                      message.request.slots.begin, " shard ",
                                      shard.key.shard.value()));
        Record(static_cast<size_t>(shard.key.shard.value()), message.request.iteration.value(),
               message.request.slots.begin);
      }
    }
    waiting_.push_back(message);
  }

  struct Answer {
    MessageId message;
    absl::Status status;
    std::vector<ShardReply> replies;
  };
  // Returns the next message that can be answered.
  std::optional<Answer> Next() {
    for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
      Answer answer{.message = it->message};
      if (fenced_) {
        answer.status = absl::AbortedError("a newer incarnation has been seen");
      } else if (dead_.contains(it->server)) {
        answer.status = absl::UnavailableError("connection reset");
      } else if (!Ready(*it, &answer.replies)) {
        continue;
      }
      waiting_.erase(it);
      return answer;
    }
    return std::nullopt;
  }
  int64_t version(int shard) const { return versions_[static_cast<size_t>(shard)]; }

  std::vector<std::string> pushed;  // "iteration/slot shard s", in the order of arrival.
  std::vector<int> pulled;          // The shards that were read.

 private:
  void Record(size_t shard, int64_t iteration, int64_t slot) {
    if (slots_ == 0) {
      ++versions_[shard];
      return;
    }
    if (iteration != versions_[shard]) return;
    arrived_[shard].insert(slot);
    if (static_cast<int>(arrived_[shard].size()) < slots_) return;
    arrived_[shard].clear();
    ++versions_[shard];
  }
  bool Ready(const SendMessage& message, std::vector<ShardReply>* replies) {
    const int64_t iteration = message.request.iteration.value();
    const bool bsp = slots_ > 0 && !message.request.snapshot;
    std::vector<int> shards;
    for (const auto& shard : message.shards) {
      const int64_t version = versions_[static_cast<size_t>(shard.key.shard.value())];
      const bool push = message.request.kind == OpKind::kPush;
      if (bsp && version < iteration + (push ? 1 : 0)) return false;
      const bool past = bsp && !push && iteration < version - 1;
      replies->push_back({.outcome = past ? ShardReply::Outcome::kPast : ShardReply::Outcome::kDone,
                          .version = Version(past ? version - 1 : version)});
      if (!push) shards.push_back(shard.key.shard.value());
    }
    pulled.insert(pulled.end(), shards.begin(), shards.end());
    return true;
  }

  const int slots_;
  std::vector<int> primaries_ = {0, 1};
  std::vector<int64_t> versions_ = std::vector<int64_t>(kShards);
  std::vector<std::set<int64_t>> arrived_ = std::vector<std::set<int64_t>>(kShards);
  std::set<int> dead_;
  bool fenced_ = false;
  std::vector<SendMessage> waiting_;
};

// A task without threads: a call that takes time suspends the loop until Settle() finds it done.
class Fixture final : public TaskPort {
 public:
  explicit Fixture(int slots, TaskLoop::Options options = {})
      : servers(slots),
        board({.bsp = slots > 0,
               .slots = std::max(slots, 1),
               .batch_size = 4,
               .evaluation_batch_size = 8,
               .train_samples = 1000}),
        session_({.acknowledgement = ModeOf(slots), .early_pulls = options.early_pulls}) {
    Route(RoutingOf(1, {0, 1}, {1, 1}));
    options.acknowledgement = ModeOf(slots);
    loop = std::make_unique<TaskLoop>(options, *this);
    loop->Start();
  }

  void Assign(Assignment assignment) {
    assignment.generation = Generation(++assignments_);
    board.Take(assignment);
    interrupted_ = true;
    Settle();
  }
  void Slots(std::vector<SlotLease> leases) {
    Assign({.phase = Phase::kTrain, .slots = std::move(leases)});
  }
  void Samples(std::vector<SampleLease> leases, bool paused = false) {
    Assign({.phase = Phase::kTrain, .samples = std::move(leases), .paused = paused});
  }
  void Route(const Routing& routing) {
    session_.SetRouting(routing, now_, &actions_);
    Settle();
  }
  void Advance(absl::Duration time) {
    now_ = now_ + time;
    session_.Tick(now_, &actions_);
    Settle();
  }
  void Kill(int server) {
    servers.Kill(server);
    Settle();
  }

  void Settle() {  // Runs everything until nothing goes on by itself.
    for (bool progress = true; progress;) {
      progress = false;
      for (const SendMessage& m : std::exchange(actions_.send, {})) servers.Take(m);
      for (OpDone& done : std::exchange(actions_.done, {})) {
        ended_.push_back(std::move(done));
        progress = true;
      }
      if (const auto answer = servers.Next(); answer.has_value()) {
        session_.OnReply(answer->message, answer->status, answer->replies, {}, now_, &actions_);
        progress = true;
      }
      if (suspended_ && CanResume()) {
        std::exchange(suspended_, nullptr).resume();
        progress = true;
      }
      most_outstanding = std::max(most_outstanding, pushes_ - pushes_ended_);
    }
  }

  void UseBoard(const std::function<void(TaskBoard&)>& use) override { use(board); }
  bool Fenced() override { return fenced; }
  void ReportSoon() override { ++reports; }
  bool HasRouting() override { return true; }
  absl::StatusOr<OpId> Push(const Work& work) override {
    ++pushes_;
    return Start(
        {.kind = OpKind::kPush, .iteration = work.iteration, .slots = work.slots, .held = true});
  }
  absl::StatusOr<OpId> Pull(const Work& work, bool snapshot) override {
    asked_for.push_back(absl::StrCat(snapshot ? "snapshot" : "", work.iteration.value(), "/",
                                     work.slots.begin, ":", work.positions.begin));
    return Start({.iteration = work.iteration, .snapshot = snapshot});
  }
  void CancelPull(OpId op) override { session_.CancelPull(op, now_, &actions_); }
  bool Wait(OpId op, OpDone* done) override {
    call_ = Call::kWait;
    op_ = op;
    done_ = done;
    return false;
  }
  bool WaitForWork() override {
    call_ = Call::kWork;
    return false;
  }
  bool Train(const Work& work, OpId push, absl::StatusOr<WorkResult>* result) override {
    trained.push_back(absl::StrCat(work.iteration.value(), "/", work.slots.begin));
    computed_ = push;
    if (!computing_blocked) Release();
    *result = train_status.ok() ? absl::StatusOr<WorkResult>(WorkResult{work.positions.size()})
                                : absl::StatusOr<WorkResult>(train_status);
    call_ = Call::kCompute;
    return false;
  }
  bool RunProgram(const Work& work, absl::StatusOr<WorkResult>* result) override {
    trained.push_back(absl::StrCat("run ", work.positions.begin));
    if (train_status.ok()) {
      *result = WorkResult{.samples = 1};
    } else {
      *result = std::exchange(train_status, absl::OkStatus());
    }
    return true;
  }
  bool Evaluate(const Work& work, absl::StatusOr<WorkResult>* result) override {
    *result = WorkResult{.samples = work.positions.size(), .loss_sum = 1.0};
    return true;  // A port may also end a call at once.
  }
  bool Export(const Work&, const std::map<TableId, Version>& versions, absl::Status*) override {
    exported = versions;
    return true;
  }
  void Suspended(std::coroutine_handle<> handle) override { suspended_ = handle; }

  Servers servers;
  TaskBoard board;
  std::vector<std::string> trained;    // "iteration/slot".
  std::vector<std::string> asked_for;  // One per pull: "iteration/slot:first position".
  std::map<TableId, Version> exported;
  absl::Status train_status;
  bool fenced = false;
  bool computing_blocked = false;
  int reports = 0;
  int most_outstanding = 0;
  std::unique_ptr<TaskLoop> loop;

 private:
  enum class Call { kNone, kWait, kWork, kCompute };

  static Acknowledgement ModeOf(int slots) {
    return slots > 0 ? Acknowledgement::kWholeIteration : Acknowledgement::kEachPush;
  }
  void Release() { session_.Release(computed_, TableId(0), 0, now_, &actions_); }
  absl::StatusOr<OpId> Start(const OpRequest& request) {
    const OpId op(++ops_);
    const absl::Status status = session_.Start(op, request, now_, &actions_);
    if (!status.ok()) return status;
    return op;
  }
  bool CanResume() {
    switch (call_) {
      case Call::kWork:
        return fenced || TaskLoop::HasWork(board, true);
      case Call::kCompute:
        if (!computing_blocked) Release();  // The values of the push are ready now.
        return !computing_blocked;
      case Call::kNone:
        return false;
      case Call::kWait:
        break;
    }
    const auto end = std::find_if(ended_.begin(), ended_.end(),
                                  [this](const OpDone& done) { return done.op == op_; });
    if (end != ended_.end()) {
      *done_ = *end;
      ended_.erase(end);
      if (done_->versions.empty()) ++pushes_ended_;
      return true;
    }
    if (!std::exchange(interrupted_, false)) return false;
    *done_ = {.op = op_, .status = absl::CancelledError("interrupted")};
    return true;
  }

  Instant now_;
  SessionActions actions_;
  PushPullSession session_;
  std::vector<OpDone> ended_;
  uint64_t ops_ = 0;
  uint64_t assignments_ = 0;
  int pushes_ = 0;
  int pushes_ended_ = 0;
  bool interrupted_ = false;
  Call call_ = Call::kNone;
  OpId op_;
  OpId computed_;  // The push of the gradient that Train computes.
  OpDone* done_ = nullptr;
  std::coroutine_handle<> suspended_;
};

SlotLease Slot(int slot, int64_t begin, int64_t end) {
  return {SlotId(slot), Iteration(begin), Iteration(end)};
}
using Names = std::vector<std::string>;
TEST_CASE(
    "TaskLoop: one task with every slot of an iteration computes them all before the first "
    "push is acknowledged",
    "[worker][core]") {
  Fixture fixture(2);
  fixture.Slots({Slot(0, 0, 3), Slot(1, 0, 3)});
  CHECK(fixture.trained == Names{"0/0", "0/1", "1/0", "1/1", "2/0", "2/1"});
  CHECK(fixture.servers.version(0) == 3);
  CHECK(fixture.board.Idle());
  CHECK(fixture.board.totals().samples == 24);
  CHECK(fixture.most_outstanding == 2);  // There are as many gradients as slots, and no more.
}

TEST_CASE("TaskLoop: a task that was left behind goes on where the others are", "[worker][core]") {
  Fixture fixture(2);
  fixture.computing_blocked = true;
  fixture.Slots({Slot(0, 0, 9)});
  // The iterations finish without this task: the job has backups, or another task holds the slot.
  for (int64_t iteration = 0; iteration < 5; ++iteration) {
    for (const int64_t slot : {0, 1}) fixture.servers.Arrive(iteration, slot);
  }
  fixture.computing_blocked = false;
  fixture.Settle();
  CHECK(fixture.trained == Names{"0/0", "5/0"});  // It skips 4, which can still be read.
}

TEST_CASE(
    "TaskLoop: a push that waits for a dead worker's slot is interrupted by the assignment "
    "that gives the slot to this task",
    "[worker][core]") {
  Fixture fixture(2);
  fixture.Slots({Slot(0, 0, 2)});
  CHECK(fixture.trained == Names{"0/0"});
  CHECK_FALSE(fixture.board.Idle());
  SECTION("with another iteration to come") {
    fixture.Slots({Slot(0, 0, 2), Slot(1, 0, 2)});
    CHECK(fixture.trained == Names{"0/0", "0/1", "1/0", "1/1"});
  }
  SECTION("at the end of its own lease") {
    fixture.servers.Arrive(0, 1);
    fixture.Settle();
    CHECK(fixture.trained == Names{"0/0", "1/0"});
    CHECK_FALSE(fixture.board.Idle());
    fixture.Slots({Slot(0, 0, 2), Slot(1, 1, 2)});
    CHECK(fixture.trained == Names{"0/0", "1/0", "1/1"});
  }
  CHECK(fixture.servers.version(1) == 2);
  CHECK(fixture.board.Idle());
}

TEST_CASE("TaskLoop: where parameters are rows that a batch names, each batch has its own pull",
          "[worker][core]") {
  const bool keyed = GENERATE(false, true);
  Fixture fixture(2, {.keyed = keyed});
  fixture.Slots({Slot(0, 0, 2), Slot(1, 0, 2)});
  CHECK(fixture.trained == Names{"0/0", "0/1", "1/0", "1/1"});
  CHECK(fixture.asked_for ==
        (keyed ? Names{"0/0:0", "0/1:4", "1/0:8", "1/1:12"} : Names{"0/0:0", "1/0:8"}));
  fixture.asked_for.clear();
  fixture.Assign({.phase = Phase::kEvaluate, .samples = {{LeaseId(9), {0, 20}}}});
  CHECK(fixture.asked_for == (keyed ? Names{"snapshot0/0:0", "snapshot0/0:8", "snapshot0/0:16"}
                                    : Names{"snapshot0/0:0"}));
  CHECK(fixture.board.sample_progress()[0].loss_sum == 3.0);
}

TEST_CASE("TaskLoop: early pulls are answered while the batch before is computed",
          "[worker][core]") {
  const bool early = GENERATE(false, true);
  Fixture fixture(0, {.keyed = true, .early_pulls = early});
  fixture.computing_blocked = true;
  fixture.Samples({{LeaseId(1), {0, 12}}});
  CHECK(fixture.servers.pushed.empty());
  CHECK(fixture.servers.pulled.size() ==
        kShards * (early ? 2 : 1));  // Early: the second batch, too.
  fixture.computing_blocked = false;
  fixture.Settle();
  CHECK(fixture.trained == Names{"0/0", "1/0", "2/0"});
  CHECK(fixture.asked_for == Names{"0/0:0", "1/0:4", "2/0:8"});  // No row is asked for twice.
  CHECK(fixture.most_outstanding <= 2);
}

TEST_CASE("TaskLoop: a slot that others have completed is skipped to where it can be read",
          "[worker][core]") {
  Fixture fixture(2);
  for (int c = 0; c < 5; ++c) {
    fixture.servers.Arrive(c, 0);
    fixture.servers.Arrive(c, 1);
  }
  fixture.Slots({Slot(0, 0, 6), Slot(1, 5, 6)});
  CHECK(fixture.trained == Names{"4/0", "5/0", "5/1"});
  CHECK(fixture.reports > 0);
  CHECK(fixture.board.Idle());
}

TEST_CASE("TaskLoop: under BSP it reports at once when its slots are done, not after each batch",
          "[worker][core]") {
  Fixture fixture(1);
  fixture.Slots({Slot(0, 0, 5)});
  CHECK(fixture.trained.size() == 5);
  CHECK(fixture.board.Idle());
  CHECK(fixture.reports == 1);
}

TEST_CASE("TaskLoop: when a server dies, its pushes and reads are repeated at the new primary",
          "[worker][core]") {
  Fixture fixture(2);
  fixture.Slots({Slot(0, 0, 2)});
  fixture.Kill(1);  // Shard 1 forgets slot 0 of iteration 0; shard 0 has it.
  fixture.servers.pushed.clear();
  fixture.servers.Promote(1, 0);
  fixture.Route(RoutingOf(2, {0, 0}, {1, 2}));
  CHECK(fixture.servers.pushed == Names{"0/0 shard 0", "0/0 shard 1"});
  CHECK(fixture.trained == Names{"0/0"});  // Its gradient was kept, so it is not computed again.
  fixture.servers.Arrive(0, 1);
  fixture.Settle();
  fixture.servers.Arrive(1, 1);
  fixture.Settle();
  CHECK(fixture.trained == Names{"0/0", "1/0"});
  CHECK(fixture.servers.version(1) == 2);
  CHECK(fixture.board.Idle());
}

TEST_CASE(
    "TaskLoop: a shard read from a primary that is deposed before the pull has ended is read "
    "again",
    "[worker][core]") {
  Fixture fixture(2);
  fixture.Kill(1);
  fixture.Slots({Slot(0, 0, 1), Slot(1, 0, 1)});
  CHECK(fixture.servers.pulled == std::vector<int>{0});  // Shard 1's server is gone.
  CHECK(fixture.trained.empty());
  fixture.servers.Promote(1, 0);
  fixture.Route(RoutingOf(2, {0, 0}, {2, 2}));  // Shard 0's primary has a new term.
  CHECK(fixture.servers.pulled == std::vector<int>{0, 0, 1});
  CHECK(fixture.board.Idle());
}

TEST_CASE("TaskLoop: paused, it ends what it has begun, reports idle, and goes on where it was",
          "[worker][core]") {
  Fixture fixture(0);
  fixture.computing_blocked = true;
  fixture.Samples({{LeaseId(1), {0, 12}}});
  CHECK(fixture.trained == Names{"0/0"});
  fixture.Samples({{LeaseId(1), {0, 12}}}, /*paused=*/true);
  CHECK_FALSE(fixture.board.Idle());
  fixture.computing_blocked = false;
  fixture.Settle();
  CHECK(fixture.trained == Names{"0/0"});
  CHECK(fixture.board.Idle());
  CHECK(fixture.board.sample_progress()[0].position_done == 4);
  CHECK(fixture.board.Next().kind == Work::Kind::kNone);
  fixture.Samples({{LeaseId(1), {0, 12}}});
  CHECK(fixture.trained == Names{"0/0", "1/0", "2/0"});
  CHECK(fixture.board.sample_progress()[0].position_done == 12);
  CHECK(fixture.board.totals().samples == 12);
}

TEST_CASE("TaskLoop: where pushes are acknowledged at once, at most two are on their way",
          "[worker][core]") {
  Fixture fixture(0);
  fixture.Samples({{LeaseId(1), {0, 400}}});
  CHECK(fixture.board.totals().samples == 400);
  CHECK(fixture.most_outstanding <= 2);
}

TEST_CASE("TaskLoop: after training it evaluates and exports one snapshot each, then finishes",
          "[worker][core]") {
  Fixture fixture(2);
  fixture.Slots({Slot(0, 0, 2), Slot(1, 0, 2)});
  fixture.servers.pulled.clear();
  fixture.Assign({.phase = Phase::kEvaluate, .samples = {{LeaseId(9), {0, 20}}}});
  CHECK(fixture.board.sample_progress()[0].loss_sum == 3.0);
  CHECK(fixture.servers.pulled.size() == kShards);
  fixture.Assign({.phase = Phase::kExport, .export_path = "out"});
  CHECK(fixture.exported.at(TableId(0)) == Version(2));
  CHECK(fixture.board.exported());
  CHECK(fixture.servers.pulled.size() == 2 * kShards);
  fixture.Assign({.phase = Phase::kFinish});
  REQUIRE(fixture.loop->ended());
  CHECK(fixture.loop->outcome().ok());
}

TEST_CASE("TaskLoop: fenced off, it ends without an error", "[worker][core]") {
  Fixture fixture(2);
  fixture.Slots({Slot(0, 0, 2)});
  SECTION("by the scheduler") {
    fixture.fenced = true;
    fixture.Assign({.phase = Phase::kTrain});  // The port interrupts the wait.
  }
  SECTION("by a server") {
    fixture.servers.Fence();
    fixture.Settle();
  }
  REQUIRE(fixture.loop->ended());
  CHECK(fixture.loop->outcome().ok());
}

TEST_CASE("TaskLoop: a failure to compute ends it, naming the iteration", "[worker][core]") {
  Fixture fixture(2);
  fixture.train_status = absl::OutOfRangeError("loss is NaN");
  fixture.Slots({Slot(0, 0, 2)});
  REQUIRE(fixture.loop->ended());
  CHECK_STATUS(fixture.loop->outcome(), absl::StatusCode::kOutOfRange, "iteration 0: loss is NaN");
}

TEST_CASE("TaskLoop: destroyed in the middle of a wait, it is gone", "[worker][core]") {
  Fixture fixture(2);
  fixture.Slots({Slot(0, 0, 2)});
  REQUIRE_FALSE(fixture.loop->ended());
  fixture.loop.reset();  // The sanitizers watch that nothing is left.
  CHECK(fixture.trained == Names{"0/0"});
}

TEST_CASE("TaskLoop: at own pace the program's run is all there is to train", "[worker][core]") {
  Fixture fixture(0, {.own_pace = true});
  SECTION("it is run once, and nothing is pulled or pushed for it") {
    fixture.Samples({{LeaseId(1), {3, 4}}});
    CHECK(fixture.trained == Names{"run 3"});
    CHECK(fixture.asked_for.empty());
    CHECK(fixture.board.Idle());
    CHECK(fixture.board.sample_progress()[0].position_done == 4);
    fixture.Assign({.phase = Phase::kExport, .export_path = "out"});
    CHECK(fixture.asked_for.size() == 1);  // A snapshot.
    CHECK(fixture.board.exported());
  }
  SECTION("a run that was taken away is not done, and the task goes on") {
    fixture.train_status = absl::CancelledError("taken away");
    fixture.Samples({{LeaseId(1), {3, 4}}});
    CHECK(fixture.board.sample_progress()[0].position_done == 3);
    fixture.Assign({.phase = Phase::kFinish});
    REQUIRE(fixture.loop->ended());
    CHECK(fixture.loop->outcome().ok());
    CHECK(fixture.board.Idle());
  }
  SECTION("a run that fails ends the task") {
    fixture.train_status = absl::InvalidArgumentError("ValueError: no");
    fixture.Samples({{LeaseId(1), {3, 4}}});
    REQUIRE(fixture.loop->ended());
    CHECK_STATUS(fixture.loop->outcome(), absl::StatusCode::kInvalidArgument, "ValueError: no");
  }
}

}  // namespace
}  // namespace capstan::worker::task_loop_test
