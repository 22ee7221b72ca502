#include "scheduler/cli/operations/checkpoint_save.h"

#include <catch2/catch.hpp>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/cli/operations/testing/fake_operations.h"

namespace capstan::cli::checkpoint_save_test {
namespace {

v1::SaveCheckpointResponse GoesOn(uint64_t asked_id) {
  v1::SaveCheckpointResponse answer;
  answer.set_asked_id(asked_id);
  return answer;
}

v1::SaveCheckpointResponse Complete(uint64_t id) {
  v1::SaveCheckpointResponse answer;
  answer.set_checkpoint_id(id);
  answer.set_folder("/c/checkpoint-7");
  return answer;
}

Patience::Options Hurried(absl::Duration limit = absl::Minutes(1)) {
  return {.limit = limit, .interval = absl::ZeroDuration(), .meanwhile = ""};
}

TEST_CASE("SaveCheckpoint: asks for one, and then waits for that one", "[cli]") {
  const FakeOperations fake({.saved = {GoesOn(6), GoesOn(6), Complete(7)}});
  SchedulerClient client({fake.address(), "test"});
  REQUIRE_OK_AND_ASSIGN(const v1::SaveCheckpointResponse saved, SaveCheckpoint(client, "a-1"));
  CHECK(saved.folder() == "/c/checkpoint-7");
  const auto requests = fake.save_requests();
  REQUIRE(requests.size() == 3);
  CHECK(requests[0].asked_id() == 0);
  CHECK(requests[1].asked_id() == 6);
  CHECK(requests[2].asked_id() == 6);
  CHECK(requests[0].job_id() == "a-1");
  CHECK(requests[0].wait_limit_ms() == 0);    // The scheduler returns the request's id at once.
  CHECK(requests[1].wait_limit_ms() == 500);  // No signal has to wait for longer.
}

TEST_CASE("SaveCheckpoint: waits through the scheduler's absence, and asks for no other", "[cli]") {
  const FakeOperations fake({.saved = {GoesOn(6), Complete(6)}, .away = {0, 2, 3}});
  SchedulerClient client({fake.address(), "test"});
  REQUIRE_OK_AND_ASSIGN(const v1::SaveCheckpointResponse saved,
                        SaveCheckpoint(client, "a-1", Hurried()));
  CHECK(saved.checkpoint_id() == 6);
  const auto requests = fake.save_requests();
  REQUIRE(requests.size() == 5);
  CHECK(requests[1].asked_id() == 0);
  for (const size_t call : {2, 3, 4}) CHECK(requests[call].asked_id() == 6);
}

TEST_CASE("SaveCheckpoint: a scheduler that stays away is given up", "[cli]") {
  const FakeOperations fake({.saved = {GoesOn(6)}, .away = {1}});
  SchedulerClient client({fake.address(), "test"});
  CHECK_STATUS(SaveCheckpoint(client, "a-1", Hurried(absl::ZeroDuration())),
               absl::StatusCode::kUnavailable, "nobody is there");
}

TEST_CASE("SchedulerClient: a job is submitted from a checkpoint", "[cli]") {
  const FakeOperations fake({});
  SchedulerClient client({fake.address(), "test"});
  v1::SubmitJobRequest request;
  request.mutable_spec()->set_name("a");
  request.set_restore_folder("/c/checkpoint-7");
  REQUIRE_OK(client.SubmitJob(request).status());
  CHECK(fake.submit_requests().at(0).restore_folder() == "/c/checkpoint-7");
  CHECK(fake.submit_requests().at(0).spec().name() == "a");
}

}  // namespace
}  // namespace capstan::cli::checkpoint_save_test
