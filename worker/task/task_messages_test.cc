#include "worker/task/task_messages.h"

#include <catch2/catch.hpp>

#include "common/testing/status_matchers.h"
#include "worker/task/computation/lost_gpus.h"
#include "worker/task/failures.h"

namespace capstan::worker::task_messages_test {
namespace {

TEST_CASE("Task messages: an assignment keeps its leases and numbers", "[worker][task]") {
  v1::Assignment proto;
  proto.set_generation(4);
  proto.set_phase(v1::Assignment::TRAIN);
  proto.set_epoch(2);
  proto.set_start_iteration(9);
  proto.set_epoch_first_iteration(30);
  proto.set_paused(true);
  v1::SlotLease* slot = proto.add_slots();
  slot->set_slot(3);
  slot->set_iteration_begin(31);
  slot->set_iteration_end(45);
  v1::SampleLease* samples = proto.add_samples();
  samples->set_lease_id(7);
  samples->set_begin(100);
  samples->set_end(164);
  REQUIRE_OK_AND_ASSIGN(const Assignment assignment, AssignmentFromProto(proto));
  CHECK(assignment.generation == Generation(4));
  CHECK(assignment.phase == Phase::kTrain);
  CHECK(assignment.epoch == Epoch(2));
  CHECK(assignment.start_iteration == Iteration(9));
  CHECK(assignment.epoch_first_iteration == Iteration(30));
  CHECK(assignment.slots[0].end == Iteration(45));
  CHECK(assignment.paused);
  CHECK(assignment.samples[0].positions == Range{100, 164});
}

TEST_CASE("Task messages: an assignment that cannot be is refused", "[worker][task]") {
  v1::Assignment proto;
  CHECK_STATUS(AssignmentFromProto(proto), absl::StatusCode::kInvalidArgument, "assignment.phase");
  proto.set_phase(v1::Assignment::TRAIN);
  v1::SampleLease* samples = proto.add_samples();
  samples->set_begin(9);
  samples->set_end(3);
  CHECK_STATUS(AssignmentFromProto(proto), absl::StatusCode::kInvalidArgument, "[9, 3)");
}

TEST_CASE("Task messages: progress carries totals, leases and staleness", "[worker][task]") {
  TaskBoard board({.batch_size = 4, .train_samples = 8});
  board.Take({.generation = Generation(1),
              .phase = Phase::kTrain,
              .samples = {{LeaseId(5), {0, 8}}},
              .start_iteration = Iteration(3)});
  const Work work = board.Next();
  REQUIRE(board.Start(work));
  board.Done(work, {.samples = 4, .loss_sum = 2.5, .correct = 3});
  board.SawRead({.staleness = 1, .cached = 30, .pulled = 12});
  const v1::TaskProgress progress = ProgressToProto(board);
  CHECK(progress.iterations() == 4);
  CHECK(progress.samples(0).lease_id() == 5);
  CHECK(progress.samples(0).position_done() == 4);
  CHECK(progress.samples_total() == 4);
  CHECK(progress.loss_total() == 2.5);
  CHECK(progress.correct_total() == 3);
  CHECK(progress.staleness_counts(1) == 1);
  CHECK(progress.rows_cached() == 30);
  CHECK(progress.rows_pulled() == 12);
}

TEST_CASE("Task messages: a finished evaluation carries its scores as steps from bin to bin",
          "[worker][task]") {
  TaskBoard board({.batch_size = 4, .evaluation_batch_size = 4});
  board.Take({.generation = Generation(1),
              .phase = Phase::kEvaluate,
              .samples = {{LeaseId(5), {0, 4}}, {LeaseId(6), {4, 8}}}});
  WorkResult result{.samples = 4};
  result.scores.Add(0.0f, false);
  result.scores.Add(0.0f, true);
  result.scores.Add(0.0f, true);
  result.scores.Add(2.0f, false);
  REQUIRE(board.Start(board.Next()));
  board.Done({.kind = Work::Kind::kEvaluate, .positions = {0, 4}, .lease = LeaseId(5)}, result);
  const v1::TaskProgress progress = ProgressToProto(board);
  const v1::ScoreCounts& scores = progress.samples(0).scores();
  REQUIRE(scores.bin_steps_size() == 2);
  CHECK(scores.bin_steps(0) == 0x8000);  // The upper half of 0.0f, sign bit flipped.
  CHECK(scores.bin_steps(1) == 0x4000);  // The bin of 2.0f is 0x4000 above it.
  CHECK(scores.non_clicks(0) == 1);
  CHECK(scores.clicks(0) == 2);
  CHECK(scores.non_clicks(1) == 1);
  CHECK(scores.clicks(1) == 0);
  CHECK_FALSE(progress.samples(1).has_scores());
}

TEST_CASE("Task messages: a wait names its peer and whom it waits on", "[worker][task]") {
  const SessionWait wait{.waiting = true,
                         .request = {.kind = OpKind::kPull, .iteration = Iteration(6)},
                         .since = Instant(),
                         .peer = "server-1",
                         .waiting_on = {{.shard = {TableId(0), ShardId(2)},
                                         .iteration = Iteration(5),
                                         .ranks = {1},
                                         .slots = {}}}};
  const v1::Wait proto = WaitToProto(wait, Instant() + absl::Seconds(2));
  CHECK(proto.what() == "pull");
  CHECK(proto.waited_ms() == 2000);
  CHECK(proto.peer() == "server-1");
  CHECK(proto.waiting_on(0).shard() == 2);
  CHECK(proto.waiting_on(0).ranks(0) == 1);
}

TEST_CASE("Failures: each code has its named reason", "[worker][task]") {
  CHECK(FailureOf(absl::OutOfRangeError("x")).reason() == v1::Failure::DIVERGED);
  CHECK(FailureOf(absl::DataLossError("x")).reason() == v1::Failure::BAD_DATA);
  CHECK(FailureOf(absl::NotFoundError("x")).reason() == v1::Failure::BAD_DATA);
  CHECK(FailureOf(absl::InvalidArgumentError("x")).reason() == v1::Failure::USER_ERROR);
  CHECK(FailureOf(absl::ResourceExhaustedError("x")).reason() == v1::Failure::OUT_OF_MEMORY);
  CHECK(FailureOf(absl::UnavailableError("x")).reason() == v1::Failure::INTERNAL);
  CHECK(FailureOf(absl::ResourceExhaustedError("x"), FailedAt::kWritingModel).reason() ==
        v1::Failure::OUTPUT_FAILED);
  CHECK(FailureOf(absl::UnavailableError("x"), FailedAt::kComputingOnGpu).reason() ==
        v1::Failure::DEVICE_LOST);
  CHECK(FailureOf(absl::OutOfRangeError("x"), FailedAt::kComputingOnGpu).reason() ==
        v1::Failure::DIVERGED);
  const absl::Status lost = WithLostGpus(absl::UnavailableError("x"), {1, 3});
  const v1::Failure failure = FailureOf(lost, FailedAt::kComputingOnGpu);
  CHECK(std::vector<int>(failure.gpus_lost().begin(), failure.gpus_lost().end()) ==
        std::vector<int>{1, 3});
  CHECK(FailureOf(lost).gpus_lost().empty());  // An unreachable server does not mean a lost GPU.
  CHECK(FailureOf(absl::DeadlineExceededError("x")).reason() == v1::Failure::HANG);
  CHECK(FailureOf(absl::InternalError("why")).message() == "why");
}

}  // namespace
}  // namespace capstan::worker::task_messages_test
