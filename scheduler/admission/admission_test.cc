#include "scheduler/admission/admission.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "common/job/check/check_job.h"
#include "common/storage/posix_disk.h"
#include "common/tensor/model_file.h"
#include "common/testing/status_matchers.h"
#include "common/types/job_limits.h"
#include "scheduler/testing/small_job.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::admission_test {
namespace {

TEST_CASE("Admission: a good job becomes a plan with counts, tables and defaults", "[scheduler]") {
  const testing::TemporaryFolder folder;
  PosixDisk disk;
  REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(testing::MakeSmallJob(folder.path())));
  CHECK(job.plan.consistency.mode == ConsistencyMode::kSsp);
  CHECK(job.mode == "ssp(2)");
  CHECK(job.plan.train_count == testing::kSmallTrainCount);
  CHECK(job.plan.test_count == testing::kSmallTestCount);
  REQUIRE(job.spec.data().train().block_examples_size() == 1);
  CHECK(job.spec.data().train().block_examples(0) == testing::kSmallTrainCount);
  REQUIRE(job.spec.data().test().block_examples_size() == 1);
  CHECK(job.spec.data().test().block_examples(0) == testing::kSmallTestCount);
  CHECK(job.plan.epochs == 2);
  CHECK(job.plan.objective == Objective::kClasses);
  CHECK(job.plan.max_restarts == 3);
  CHECK(job.plan.worker_wait == absl::Seconds(60));
  CHECK(job.plan.tables == std::vector<TableSize>{4 * 4 * 10 + 10});
  REQUIRE(job.tables.size() == 1);
  CHECK(job.tables[0].name() == "parameters");
  CHECK(job.spec.training().seed() == 1);
  CHECK(job.spec.training().slots() == 1);
  CHECK(job.plan.device == DeviceNeed());
  CHECK(job.spec.resources().device() == "cpu");

  REQUIRE_OK(NameJob(7, folder.path() + "/data", disk, OldModel::kKeep, job));
  CHECK(job.plan.id == "small-7");
  CHECK(job.output_directory == folder.path() + "/data/jobs/small-7");
  CHECK(std::filesystem::is_directory(job.output_directory));
  CHECK(job.plan.export_path == job.output_directory);
  CHECK(job.plan.checkpoint_folder == job.output_directory + "/checkpoints");
}

TEST_CASE("Admission: the folders that jobs are compared by have no links in them", "[scheduler]") {
  const testing::TemporaryFolder folder;
  PosixDisk disk;
  const std::string real = std::filesystem::canonical(folder.path()).string() + "/real";
  REQUIRE(std::filesystem::create_directory(real));
  std::filesystem::create_directory_symlink(real, folder.path() + "/link");
  v1::JobSpec spec = testing::MakeSmallJob(folder.path());
  for (const char* name : {"/real", "/real/", "/link", "/x/../link/./"}) {
    INFO(name);
    spec.mutable_output()->set_directory(folder.path() + name);
    REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(spec));
    REQUIRE_OK(NameJob(1, folder.path(), disk, OldModel::kKeep, job));
    CHECK(job.plan.folders.output == real);
    CHECK(job.plan.folders.checkpoints == real + "/checkpoints");
  }
  // The cluster's other machines get the path that the user wrote.
  spec.mutable_output()->set_directory(folder.path() + "/link");
  spec.mutable_checkpoints()->set_directory(folder.path() + "/link");
  REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(spec));
  REQUIRE_OK(NameJob(2, folder.path(), disk, OldModel::kKeep, job));
  CHECK(job.output_directory == folder.path() + "/link");
  CHECK(job.plan.checkpoint_folder == folder.path() + "/link/small-2");
  CHECK(job.plan.folders.checkpoints == real + "/small-2");
}

TEST_CASE("Admission: what tasks compute on is in the plan, and said in full", "[scheduler]") {
  const testing::TemporaryFolder folder;
  v1::JobSpec spec = testing::MakeSmallJob(folder.path());
  spec.mutable_resources()->set_gpus(2);
  REQUIRE_OK_AND_ASSIGN(const AdmittedJob two, AdmitJob(spec));
  CHECK(two.plan.device == DeviceNeed{.kind = DeviceNeed::Kind::kGpu, .gpus = 2});
  CHECK(two.spec.resources().device() == "cuda");
  spec.mutable_resources()->set_gpus(0);
  spec.mutable_resources()->set_device("auto");
  REQUIRE_OK_AND_ASSIGN(const AdmittedJob any, AdmitJob(spec));
  CHECK(any.plan.device == DeviceNeed{.kind = DeviceNeed::Kind::kAny, .gpus = 1});
  CHECK(any.spec.resources().gpus() == 1);
}

TEST_CASE("Admission: a folder that holds a model is left to its owner (issue 21)", "[scheduler]") {
  const testing::TemporaryFolder folder;
  PosixDisk disk;
  const auto leave_model = [](const std::string& where) {
    REQUIRE_OK(WriteModelFiles(where, "lenet-3", {}, {}));
  };
  SECTION("that it asks for") {
    v1::JobSpec spec = testing::MakeSmallJob(folder.path());
    const std::string out = folder.path() + "/out";
    spec.mutable_output()->set_directory(out);
    REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(spec));
    leave_model(out);
    CHECK_STATUS(NameJob(1, folder.path(), disk, OldModel::kKeep, job),
                 absl::StatusCode::kFailedPrecondition, out + " holds the model of lenet-3");
    REQUIRE_OK(NameJob(1, folder.path(), disk, OldModel::kReplace, job));
    CHECK(job.output_directory == out);
  }
  SECTION("of its name, where names come again") {
    REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(testing::MakeSmallJob(folder.path())));
    leave_model(folder.path() + "/jobs/small-1");
    REQUIRE_OK(NameJob(1, folder.path(), disk, OldModel::kKeep, job));
    CHECK(job.output_directory == folder.path() + "/jobs/small-1-2");
    CHECK_FALSE(job.submitted.has_output());
  }
}

TEST_CASE("Admission: a folder that cannot take the model is refused before training (issue 21)",
          "[scheduler]") {
  testing::TemporaryFolder folder;
  PosixDisk disk;
  v1::JobSpec spec = testing::MakeSmallJob(folder.path());
  {
    REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(spec));
    CHECK(ModelBytes(job) == 170 * 4);
    REQUIRE_OK(NameJob(1, folder.path(), disk, OldModel::kKeep, job));
    CHECK(std::filesystem::is_empty(job.output_directory));  // CheckWritable's file is gone.
  }
  // Not even root can create a file in these folders.
  spec.mutable_output()->set_directory("/proc/self");
  REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(spec));
  CHECK_STATUS(NameJob(2, folder.path(), disk, OldModel::kKeep, job),
               absl::StatusCode::kInvalidArgument, "output.directory: cannot write /proc/self");
  CHECK_STATUS(CheckWritable("folder", folder.path(), int64_t{1} << 60),
               absl::StatusCode::kInvalidArgument, "expected at least 1152921504606846976");
  CHECK_STATUS(CheckWritable("folder", "/dev/null/x", 0), absl::StatusCode::kInvalidArgument,
               "folder: cannot make the folder /dev/null/x");
}

TEST_CASE("Admission: copies, log and checkpoints reach the plan, with their defaults",
          "[scheduler]") {
  const testing::TemporaryFolder folder;
  PosixDisk disk;
  v1::JobSpec spec = testing::MakeSmallJob(folder.path());
  {
    REQUIRE_OK_AND_ASSIGN(const AdmittedJob job, AdmitJob(spec));
    CHECK(job.plan.replicas == 0);
    CHECK_FALSE(job.plan.log);
    CHECK(job.plan.server_wait == absl::Seconds(60));
    CHECK(job.plan.checkpoint_iterations == 0);
    CHECK(job.plan.checkpoint_interval == absl::ZeroDuration());
    CHECK(job.plan.checkpoints_kept == 2);
    CHECK(job.spec.checkpoints().keep() == 2);
  }
  spec.mutable_resources()->set_replicas(2);
  spec.mutable_resources()->set_servers(3);
  spec.mutable_resources()->set_server_wait_seconds(5);
  spec.set_durability(v1::LOG);
  spec.mutable_checkpoints()->set_every_iterations(100);
  spec.mutable_checkpoints()->set_every_seconds(30);
  spec.mutable_checkpoints()->set_keep(7);
  spec.mutable_checkpoints()->set_directory(folder.path() + "/shared/../saved");
  REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(spec));
  CHECK(job.plan.replicas == 2);
  CHECK(job.plan.log);
  CHECK(job.plan.server_wait == absl::Seconds(5));
  CHECK(job.plan.checkpoint_iterations == 100);
  CHECK(job.plan.checkpoint_interval == absl::Seconds(30));
  CHECK(job.plan.checkpoints_kept == 7);
  REQUIRE_OK(NameJob(7, folder.path() + "/data", disk, OldModel::kKeep, job));
  // The job has a subfolder, so jobs that share the directory do not share their checkpoints.
  CHECK(job.plan.checkpoint_folder == folder.path() + "/saved/small-7");
  CHECK(std::filesystem::is_directory(job.plan.checkpoint_folder));
}

TEST_CASE("Admission: a job's checkpoints are numbered from above those in its folder",
          "[scheduler]") {
  const testing::TemporaryFolder folder;
  PosixDisk disk;
  v1::JobSpec spec = testing::MakeSmallJob(folder.path());
  spec.mutable_output()->set_directory(folder.path() + "/out");
  REQUIRE_OK_AND_ASSIGN(AdmittedJob first, AdmitJob(spec));
  REQUIRE_OK(NameJob(1, folder.path(), disk, OldModel::kKeep, first));
  CHECK(first.plan.checkpoint_floor == CheckpointId(0));
  for (const char* name : {"checkpoint-6", "checkpoint-5"}) {
    REQUIRE_OK(disk.MakeFolder(first.plan.checkpoint_folder + "/" + name));
  }
  REQUIRE_OK_AND_ASSIGN(AdmittedJob second, AdmitJob(spec));
  REQUIRE_OK(NameJob(2, folder.path(), disk, OldModel::kKeep, second));
  CHECK(second.plan.checkpoint_floor == CheckpointId(6));
}

TEST_CASE("Admission: of a program at its own pace the samples are the runs of its tasks",
          "[scheduler]") {
  v1::JobSpec spec;
  spec.mutable_program()->add_command("train");
  spec.mutable_program()->set_own_pace(true);
  spec.mutable_program()->add_parameters()->set_name("w");
  spec.mutable_program()->add_parameters()->set_name("b");
  spec.mutable_optimizer()->mutable_sgd();
  spec.mutable_optimizer()->set_learning_rate(1);
  spec.mutable_consistency()->mutable_asp();
  spec.mutable_resources()->set_workers(3);
  REQUIRE_OK_AND_ASSIGN(const AdmittedJob job, AdmitJob(spec));
  CHECK(job.plan.own_pace);
  CHECK(job.plan.train_count == 3);
  CHECK(job.plan.epochs == 1);
  CHECK(job.plan.batch_size == 1);
  CHECK(job.plan.tables == std::vector<TableSize>{1, 1});
  CHECK(job.spec.training().batch_size() == 1);  // Tasks read this one.
  CHECK(job.submitted.training().batch_size() == 0);
  REQUIRE_OK(CheckPlan(job.plan));
}

TEST_CASE("Admission: the plan has the shortest time to live of all rows", "[scheduler]") {
  v1::JobSpec spec;
  spec.mutable_program()->add_command("train");
  spec.mutable_program()->set_own_pace(true);
  spec.mutable_program()->add_parameters()->set_name("w");
  for (const int64_t ttl : {int64_t{0}, int64_t{7200}, int64_t{3600}, int64_t{86'400}}) {
    v1::Program::Rows& rows = *spec.mutable_program()->add_rows();
    rows.set_name("rows-" + std::to_string(ttl));
    rows.set_dim(1);
    rows.mutable_lifetime()->set_ttl_seconds(ttl);
  }
  spec.mutable_optimizer()->mutable_sgd();
  spec.mutable_optimizer()->set_learning_rate(1);
  spec.mutable_consistency()->mutable_asp();
  spec.mutable_resources()->set_workers(1);
  REQUIRE_OK_AND_ASSIGN(const AdmittedJob job, AdmitJob(spec));
  CHECK(job.plan.ttl_seconds == 3600);
  CHECK(job.tables.back().sparse().ttl_seconds() == 86'400);
}

TEST_CASE("Admission: defaults are those of the job file, and what is set stays", "[scheduler]") {
  v1::JobSpec spec;
  spec.mutable_resources()->set_workers(3);
  spec.mutable_resources()->set_max_restarts(0);
  FillDefaults(spec);
  CHECK(spec.name() == "job");
  CHECK(spec.training().slots() == 3);
  CHECK(spec.resources().threads() == 1);
  CHECK(spec.resources().max_restarts() == 0);
  CHECK(spec.consistency().has_bsp());
}

TEST_CASE("Admission: a job that cannot be run is refused with field, value and what was expected",
          "[scheduler]") {
  const testing::TemporaryFolder folder;
  PosixDisk disk;
  v1::JobSpec spec = testing::MakeSmallJob(folder.path());
  SECTION("a value out of range") {
    spec.mutable_training()->set_batch_size(-4);
    CHECK_STATUS(AdmitJob(spec), absl::StatusCode::kInvalidArgument, "training.batch_size: got -4");
  }
  SECTION("a missing file") {
    spec.mutable_data()->mutable_train()->set_images("/none/images");
    CHECK_STATUS(AdmitJob(spec), absl::StatusCode::kInvalidArgument, "/none/images");
  }
  SECTION("a plan that could not be loaded from the store") {
    JobCheck check = CheckJob(spec);
    REQUIRE(check.diagnostics.empty());
    check.train_count = kSamplesMax;
    CHECK_STATUS(AdmitJob(spec, check), absl::StatusCode::kInvalidArgument,
                 "data.train: examples: ");
  }
  SECTION("an output folder that cannot be made") {
    std::ofstream(folder.path() + "/file") << "x";
    spec.mutable_output()->set_directory(folder.path() + "/file/out");
    REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(spec));
    CHECK_STATUS(NameJob(1, folder.path(), disk, OldModel::kKeep, job),
                 absl::StatusCode::kInvalidArgument,
                 "output.directory: cannot make the folder " + folder.path() + "/file/out");
  }
  SECTION("a checkpoint folder that cannot be made") {
    std::ofstream(folder.path() + "/file") << "x";
    spec.mutable_checkpoints()->set_directory(folder.path() + "/file/saved");
    REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(spec));
    CHECK_STATUS(NameJob(1, folder.path(), disk, OldModel::kKeep, job),
                 absl::StatusCode::kInvalidArgument,
                 "checkpoints.directory: cannot make the folder " + folder.path() + "/file/saved");
  }
}

}  // namespace
}  // namespace capstan::scheduler::admission_test
