#include "scheduler/core/plan/job_plan.h"

#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::scheduler::job_plan_test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int kIntMax = std::numeric_limits<int>::max();

JobPlan Valid() {
  JobPlan plan;
  plan.consistency.slots = 4;
  plan.train_count = 3000;
  plan.test_count = 500;
  plan.tables = {431'080, {4096, /*is_sparse=*/true}};
  return plan;
}

TEST_CASE("Job plan: the largest that a job file allows is taken", "[scheduler][core]") {
  JobPlan plan = Valid();
  REQUIRE_OK(CheckPlan(plan));
  plan.workers = 4096;
  plan.consistency.slots = 1024;
  plan.consistency.backups = 1023;
  plan.batch_size = kIntMax;
  plan.epochs = kIntMax;
  plan.train_count = (int64_t{1} << 62) / plan.epochs;
  plan.consistency.backups = 0;
  plan.validation_count = plan.test_count = int64_t{1} << 60;
  plan.iterations_max = kMax;
  plan.checkpoint_iterations = kMax;
  REQUIRE_OK(CheckPlan(plan));
  // Under SSP the slots are the workers, and nobody asks for them.
  plan.consistency = {.mode = ConsistencyMode::kSsp, .slots = 4096, .staleness_bound = kIntMax};
  REQUIRE_OK(CheckPlan(plan));
}

TEST_CASE("Job plan: what the core cannot compute with is refused by field and value",
          "[scheduler][core]") {
  const auto refused = [](const std::string& why, const std::function<void(JobPlan&)>& change) {
    JobPlan plan = Valid();
    change(plan);
    CHECK_STATUS(CheckPlan(plan), absl::StatusCode::kDataLoss, why);
  };
  refused("resources.workers: 0, expected 1 to 4096", [](JobPlan& p) { p.workers = 0; });
  refused("resources.workers: 2147483647", [](JobPlan& p) { p.workers = kIntMax; });
  refused("resources.servers: -1, expected 0", [](JobPlan& p) { p.servers = -1; });
  refused("resources.replicas: 4, expected 0 to 3", [](JobPlan& p) { p.replicas = 4; });
  refused("resources.max_restarts: -1", [](JobPlan& p) { p.max_restarts = -1; });
  refused("training.slots: 0, expected 1 to 1024", [](JobPlan& p) { p.consistency.slots = 0; });
  refused("training.slots: 1025", [](JobPlan& p) { p.consistency.slots = 1025; });
  refused("backups: 4, expected 0 to 3", [](JobPlan& p) { p.consistency.backups = 4; });
  refused("staleness_bound: -1", [](JobPlan& p) { p.consistency.staleness_bound = -1; });
  refused("training.epochs: 0, expected 1 to 2147483647", [](JobPlan& p) { p.epochs = 0; });
  refused("training.batch_size: 0, expected 1 to 2147483647", [](JobPlan& p) { p.batch_size = 0; });
  refused("training.batch_size: 9223372036854775807", [](JobPlan& p) { p.batch_size = kMax; });
  refused("data.train: examples: 0, expected 1 to", [](JobPlan& p) { p.train_count = 0; });
  refused("data.train: examples: 9223372036854775807", [](JobPlan& p) { p.train_count = kMax; });
  refused("data.train: examples: 39, expected 40 to", [](JobPlan& p) {  // No whole iteration.
    p.batch_size = 10;
    p.consistency.backups = 1;
    p.train_count = 39;
  });
  refused("data.test: examples: -1", [](JobPlan& p) { p.test_count = -1; });
  refused("data.validation: examples: 9223", [](JobPlan& p) { p.validation_count = kMax; });
  refused("scores of an example: 0, expected 1 to", [](JobPlan& p) { p.scores = 0; });
  refused("scores of an example: 9223372036854775807", [](JobPlan& p) { p.scores = kMax; });
  refused("training.iterations_max: -1", [](JobPlan& p) { p.iterations_max = -1; });
  refused("resources.gpus: 0, expected 1 to 16",
          [](JobPlan& p) { p.device.kind = DeviceNeed::Kind::kGpu; });
  refused("elements of a table: -1", [](JobPlan& p) { p.tables[0].elements = -1; });
  refused("elements of a table: 4097, expected 0 to 4096",
          [](JobPlan& p) { p.tables[1].elements = 4097; });
  refused("end of a tensor: 3, expected 5 to", [](JobPlan& p) {
    p.tables[0].tensor_ends = {5, 3};
  });
  refused("ttl_seconds: 315360001, expected 0 to 315360000",
          [](JobPlan& p) { p.ttl_seconds = 315'360'001; });
  refused("checkpoints.every_iterations: -1", [](JobPlan& p) { p.checkpoint_iterations = -1; });
  refused("checkpoints.keep: 0, expected 1 to", [](JobPlan& p) { p.checkpoints_kept = 0; });
  refused("checkpoint floor: 18446744073709551615",
          [](JobPlan& p) { p.checkpoint_floor = CheckpointId(~uint64_t{0}); });
  refused("early_stopping.patience: -1", [](JobPlan& p) { p.decide.stop_patience = -1; });
}

TEST_CASE("Job plan: own pace has one run of each rank, under asp", "[scheduler][core]") {
  JobPlan plan = Valid();
  plan.own_pace = true;
  plan.epochs = 1;
  plan.batch_size = 1;
  plan.workers = 3;
  plan.train_count = 3;
  plan.consistency = {.mode = ConsistencyMode::kAsp};
  REQUIRE_OK(CheckPlan(plan));
  plan.train_count = 4;
  CHECK_STATUS(CheckPlan(plan), absl::StatusCode::kDataLoss,
               "runs of the program: 4, expected 3 to 3");
  plan.train_count = 3;
  plan.consistency.mode = ConsistencyMode::kSsp;
  CHECK_STATUS(CheckPlan(plan), absl::StatusCode::kDataLoss, "expected asp");
}

}  // namespace
}  // namespace capstan::scheduler::job_plan_test
