#include "scheduler/cli/operations/checkpoint_files.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>

#include "common/checkpoint/testing/test_checkpoint.h"
#include "common/storage/testing/sim_disk.h"
#include "common/testing/status_matchers.h"

namespace capstan::cli::checkpoint_files_test {
namespace {

using capstan::testing::WriteTestCheckpoint;

struct Fixture {
  Fixture() {
    for (const uint64_t id : {1, 2, 3}) REQUIRE_OK(WriteTestCheckpoint(disk, "/c", id));
    REQUIRE_OK(disk.MakeFolder("/c/checkpoint-4"));
  }
  std::string States(const std::string& folder, Depth depth) {
    REQUIRE_OK_AND_ASSIGN(const CheckpointListOutput list,
                          DescribeCheckpoints(disk, folder, depth));
    std::string states;
    for (const CheckpointOutput& checkpoint : list.checkpoints()) {
      states += std::to_string(checkpoint.checkpoint_id()) + " " + checkpoint.state() + "; ";
    }
    return states;
  }
  SimDisk disk{1};
};

TEST_CASE("DescribeCheckpoints: a folder of checkpoints, or one", "[cli]") {
  Fixture f;
  f.disk.FlipBit("/c/checkpoint-2/table-0-shard-0.part", 1000);
  f.disk.FlipBit("/c/checkpoint-1/manifest.pb", 300);
  CHECK(f.States("/c", Depth::kManifests) == "4 unfinished; 3 complete; 2 complete; 1 damaged; ");
  CHECK(f.States("/c/", Depth::kEveryByte) == "4 unfinished; 3 verified; 2 damaged; 1 damaged; ");
  CHECK(f.States("/c/checkpoint-3/", Depth::kEveryByte) == "3 verified; ");
  REQUIRE_OK_AND_ASSIGN(const CheckpointListOutput list,
                        DescribeCheckpoints(f.disk, "/c", Depth::kEveryByte));
  CHECK(list.checkpoints(1).job_id() == "job-1");
  CHECK(list.checkpoints(1).iteration() == 3);
  CHECK(list.checkpoints(1).shards() == 3);
  CHECK(list.checkpoints(1).path() == "/c/checkpoint-3");
  CHECK_THAT(list.checkpoints(2).detail(), Catch::Contains("checkpoint-2/table-0-shard-0.part"));
  CHECK_STATUS(DescribeCheckpoints(f.disk, "/none", Depth::kManifests), absl::StatusCode::kNotFound,
               "/none");
}

TEST_CASE("FindRestoreSource: the newest whole one, or exactly the one that is named", "[cli]") {
  Fixture f;
  {
    REQUIRE_OK_AND_ASSIGN(const RestoreSource source, FindRestoreSource(f.disk, "/c"));
    CHECK(source.path == "/c/checkpoint-3");
    CHECK(source.passed_over.size() == 1);
  }
  f.disk.FlipBit("/c/checkpoint-3/table-0-shard-0.part", 1000);
  REQUIRE_OK_AND_ASSIGN(const RestoreSource source, FindRestoreSource(f.disk, "/c"));
  CHECK(source.path == "/c/checkpoint-2");
  CHECK(source.manifest.checkpoint_id() == 2);
  CHECK(source.passed_over.size() == 2);
  REQUIRE_OK_AND_ASSIGN(const RestoreSource named, FindRestoreSource(f.disk, "/c/checkpoint-1"));
  CHECK(named.path == "/c/checkpoint-1");
  CHECK_STATUS(FindRestoreSource(f.disk, "/c/checkpoint-3"), absl::StatusCode::kDataLoss,
               "The newest whole one beside it: /c/checkpoint-2");
  CHECK_STATUS(FindRestoreSource(f.disk, "/c/checkpoint-4"), absl::StatusCode::kNotFound,
               "no complete checkpoint in /c/checkpoint-4");
}

v1::JobSpec SmallSpec() {
  v1::JobSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(R"(
    name: "mlp" model { zoo: "mlp" }
    data { format: IDX train { images: "/i" labels: "/l" } }
    training { epochs: 1 batch_size: 8 slots: 4 } optimizer { sgd {} learning_rate: 0.1 }
    resources { workers: 2 servers: 2 replicas: 1 })",
                                                        &spec));
  return spec;
}

TEST_CASE("RestoredJob: the saved job on other servers and workers", "[cli]") {
  v1::CheckpointManifest manifest;
  manifest.set_job_id("mlp-7");
  *manifest.mutable_spec() = SmallSpec();
  manifest.mutable_spec()->mutable_output()->set_directory("/d/jobs/mlp-7");
  REQUIRE_OK_AND_ASSIGN(const v1::JobSpec same, RestoredJob(manifest, {}));
  CHECK(same.resources().servers() == 2);
  CHECK(same.output().directory().empty());  // The saved job had its default folder.
  REQUIRE_OK_AND_ASSIGN(const v1::JobSpec other,
                        RestoredJob(manifest, {.servers = 3, .workers = 5}));
  CHECK(other.resources().servers() == 3);
  CHECK(other.resources().workers() == 5);
  CHECK(other.training().slots() == 4);  // The result depends on it, so it stays.
  CHECK_STATUS(RestoredJob(manifest, {.servers = 1, .workers = 0}),
               absl::StatusCode::kInvalidArgument, "resources.replicas: got 1, expected at most 0");
  manifest.mutable_spec()->mutable_output()->set_directory("/home/me/out");
  REQUIRE_OK_AND_ASSIGN(const v1::JobSpec named, RestoredJob(manifest, {}));
  CHECK(named.output().directory() == "/home/me/out");
  REQUIRE_OK_AND_ASSIGN(const v1::JobSpec moved,
                        RestoredJob(manifest, {.output = "/home/me/more"}));
  CHECK(moved.output().directory() == "/home/me/more");
}

TEST_CASE("RestoredJob: fields are set by path, and wrong ones are told as in job files", "[cli]") {
  v1::CheckpointManifest manifest;
  manifest.set_job_id("mlp-7");
  manifest.set_checkpoint_id(3);
  *manifest.mutable_spec() = SmallSpec();
  manifest.mutable_spec()->mutable_training()->set_initial_weights("/w");
  const auto with = [&manifest](std::vector<std::string> set) {
    return RestoredJob(manifest, {.set = std::move(set)});
  };
  REQUIRE_OK_AND_ASSIGN(const v1::JobSpec longer,
                        with({"training.epochs=20", "optimizer.learning_rate=0.01",
                              "optimizer.schedule.step={every: 5 factor: 0.5}"}));
  CHECK(longer.training().epochs() == 20);
  CHECK(longer.optimizer().learning_rate() == 0.01f);
  CHECK(longer.optimizer().schedule().step().every() == 5);
  CHECK(longer.training().initial_weights().empty());  // The checkpoint has the parameters.
  const auto refused = [&with](const std::string& set, const std::string& what) {
    CHECK_STATUS(with({set}), absl::StatusCode::kInvalidArgument, "--set " + set + ": " + what);
  };
  refused("training.epoch=3", "training.epoch: no such field; did you mean \"epochs\"?");
  refused("training.epochs=many", "training.epochs: got \"many\", expected a 32-bit integer");
  refused("training.epochs", "expected FIELD=VALUE");
  refused("training.epochs=-1", "training.epochs: got -1, expected at least 1");
  manifest.mutable_spec()->mutable_resources()->set_workers(0);
  CHECK_STATUS(with({}), absl::StatusCode::kInvalidArgument,
               "checkpoint 3 of mlp-7: resources.workers");
}

TEST_CASE("ResumedJob: the job as it was submitted, with the slots that it had", "[cli]") {
  v1::JobStatus job;
  job.set_job_id("mlp-7");
  job.set_mode("bsp");
  *job.mutable_spec() = SmallSpec();
  job.mutable_spec()->mutable_training()->clear_slots();
  *job.mutable_effective_spec() = SmallSpec();
  job.mutable_effective_spec()->mutable_output()->set_directory("/d/jobs/mlp-7");
  REQUIRE_OK_AND_ASSIGN(const v1::JobSpec wider, ResumedJob(job, {.workers = 8}));
  CHECK(wider.training().slots() == 4);
  CHECK(wider.resources().workers() == 8);
  CHECK(wider.output().directory().empty());
  job.set_mode("asp");
  job.mutable_spec()->mutable_consistency()->mutable_asp();
  REQUIRE_OK_AND_ASSIGN(const v1::JobSpec same, ResumedJob(job, {}));
  CHECK_FALSE(same.training().has_slots());
}

}  // namespace
}  // namespace capstan::cli::checkpoint_files_test
