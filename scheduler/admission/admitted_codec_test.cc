#include "scheduler/admission/admitted_codec.h"

#include <google/protobuf/util/message_differencer.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "common/security/capability.h"
#include "common/storage/posix_disk.h"
#include "common/testing/status_matchers.h"
#include "scheduler/testing/small_job.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::admitted_codec_test {
namespace {

using google::protobuf::util::MessageDifferencer;

TEST_CASE("Admitted codec: a job comes back as it was admitted, without its data", "[scheduler]") {
  AdmittedJob job;
  StoreRows rows{{"job/small-7", "is passed over"}, {"nodes", "too"}};
  {
    const testing::TemporaryFolder folder;
    PosixDisk disk;
    REQUIRE_OK_AND_ASSIGN(job, AdmitJob(testing::MakeSmallJob(folder.path())));
    REQUIRE_OK(NameJob(7, folder.path(), disk, OldModel::kKeep, job));
    job.plan.objective = Objective::kRatings;
    job.plan.checkpoint_floor = CheckpointId(6);
    REQUIRE_OK_AND_ASSIGN(job.capability_key, CapabilityKey::Draw());
    const StoreWrite row = EncodeAdmitted(job);
    rows[row.key] = *row.value;
    CHECK(ForgetAdmitted("small-7").key == row.key);
  }
  REQUIRE_OK_AND_ASSIGN(const AdmittedJobs jobs, DecodeAdmitted(rows));
  REQUIRE(jobs.size() == 1);
  const AdmittedJob& again = *jobs.at("small-7");
  CHECK(again.plan.id == "small-7");
  CHECK(again.plan.train_count == testing::kSmallTrainCount);
  CHECK(again.plan.tables == job.plan.tables);
  CHECK(again.plan.objective == Objective::kRatings);
  CHECK(again.plan.checkpoint_floor == CheckpointId(6));
  CHECK(again.plan.worker_wait == job.plan.worker_wait);
  CHECK(again.capability_key == job.capability_key);
  CHECK(again.mode == "ssp(2)");
  CHECK(again.output_directory == job.output_directory);
  CHECK(MessageDifferencer::Equals(again.spec, job.spec));
  CHECK(MessageDifferencer::Equals(again.submitted, job.submitted));
  REQUIRE(again.tables.size() == job.tables.size());
  CHECK(MessageDifferencer::Equals(again.tables[0], job.tables[0]));
}

TEST_CASE("Admitted codec: a job's record has no capability key", "[scheduler]") {
  const testing::TemporaryFolder folder;
  PosixDisk disk;
  REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(testing::MakeSmallJob(folder.path())));
  REQUIRE_OK(NameJob(1, folder.path(), disk, OldModel::kKeep, job));
  REQUIRE_OK_AND_ASSIGN(job.capability_key, CapabilityKey::Draw());
  const StoreWrite row = EncodeAdmittedWithoutKey(job);
  CHECK(row.value->find(job.capability_key->bytes()) == std::string::npos);
  REQUIRE_OK_AND_ASSIGN(const AdmittedJobs jobs, DecodeAdmitted({{row.key, *row.value}}));
  CHECK_FALSE(jobs.at("small-1")->capability_key.has_value());
}

TEST_CASE("Admitted codec: a damaged row is named", "[scheduler]") {
  CHECK_STATUS(DecodeAdmitted({{"admitted/a-1", "xyz"}}), absl::StatusCode::kDataLoss,
               "\"admitted/a-1\"");
}

TEST_CASE("Admitted codec: a row that holds another job is refused, with both names (fuzzed)",
          "[scheduler]") {
  const testing::TemporaryFolder folder;
  PosixDisk disk;
  REQUIRE_OK_AND_ASSIGN(AdmittedJob job, AdmitJob(testing::MakeSmallJob(folder.path())));
  REQUIRE_OK(NameJob(1, folder.path(), disk, OldModel::kKeep, job));
  const StoreWrite row = EncodeAdmitted(job);
  CHECK_STATUS(DecodeAdmitted({{"admitted/a-1", *row.value}}), absl::StatusCode::kDataLoss,
               "the store's row \"admitted/a-1\" holds the job \"small-1\"");
}

}  // namespace
}  // namespace capstan::scheduler::admitted_codec_test
