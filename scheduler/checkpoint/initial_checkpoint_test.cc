#include "scheduler/checkpoint/initial_checkpoint.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/checkpoint/manifest.h"
#include "common/storage/posix_disk.h"
#include "common/testing/status_matchers.h"
#include "scheduler/checkpoint/job_checkpoint.h"
#include "scheduler/testing/small_job.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::initial_checkpoint_test {
namespace {

TEST_CASE("Initial checkpoint: weights are a whole checkpoint of version 0, cut as tables are",
          "[scheduler]") {
  const testing::TemporaryFolder folder;
  PosixDisk disk;
  REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(testing::MakeSmallJob(folder.path())));
  REQUIRE_OK(NameJob(3, folder.path(), disk, OldModel::kKeep, job));
  job.plan.unique_id = "cluster-17";
  const int64_t elements = GENERATE(1, 170, 200'001);
  job.plan.tables = {elements};
  job.tables[0].set_elements(elements);
  job.tables[0].mutable_tensors()->Clear();
  std::vector<std::vector<float>> values(1);
  for (int64_t i = 0; i < elements; ++i) values[0].push_back(static_cast<float>(i) / 8);
  const std::string path = InitialCheckpointPath(folder.path(), job);
  CHECK(path == folder.path() + "/initial-weights/cluster-17/checkpoint-1");
  REQUIRE_OK(WriteInitialCheckpoint(disk, path, job, values, 77));

  REQUIRE_OK_AND_ASSIGN(const v1::CheckpointManifest manifest, VerifyCheckpoint(disk, path));
  CHECK(manifest.job_id() == "small-3");
  CHECK((manifest.parts_size() > 1) == (elements > 1));
  std::vector<float> read;
  for (const v1::CheckpointPart& part : manifest.parts()) {
    CHECK(part.version() == 0);
    REQUIRE_OK_AND_ASSIGN(const v1::ShardSnapshot shard,
                          ReadPart(disk, path, manifest.job_id(), part));
    CHECK(shard.optimizer_state_size() == 0);
    const size_t begin = read.size();
    read.resize(begin + shard.values().size() / sizeof(float));
    std::memcpy(read.data() + begin, shard.values().data(), shard.values().size());
  }
  CHECK(read == values[0]);

  REQUIRE_OK_AND_ASSIGN(const RestoreFrom restore, FindRestore(disk, path, job));
  CHECK(restore.at.epoch == Epoch(0));
  CHECK(restore.at.iteration == Iteration(0));
  CHECK(restore.at.untrained == std::vector<Range>{{0, testing::kSmallTrainCount}});

  REQUIRE_OK(RemoveInitialCheckpoint(disk, path));
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/initial-weights/cluster-17"));
  REQUIRE_OK(RemoveInitialCheckpoint(disk, path));
}

}  // namespace
}  // namespace capstan::scheduler::initial_checkpoint_test
