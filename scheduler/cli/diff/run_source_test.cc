#include "scheduler/cli/diff/run_source.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::cli::run_source_test {
namespace {

absl::StatusOr<v1::JobStatus> NoJobs(const std::string& job) {
  return absl::NotFoundError("no job " + job);
}

// A folder with the record of one update.
std::string Folder(const std::string& name) {
  const std::string folder = testing::TestPath(name);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/updates.csv")
      << "# capstan updates 1 of c1-ab\ncolumns\n"
         "400,2,3,48,64,parameters,9f86d081884c7d65,0026b46b68ffc68f,,1\n";
  return folder;
}

void WriteStatus(const std::string& folder, const std::string& json) {
  std::ofstream(folder + "/job.json") << json;
}

TEST_CASE("Run source: a folder has the record, and the job if there is job.json", "[cli]") {
  const std::string folder = Folder("whole");
  REQUIRE_OK_AND_ASSIGN(const RecordedRun alone, ReadRun(folder, NoJobs));
  CHECK(alone.origin.name == folder);
  CHECK_FALSE(alone.origin.spec.has_value());
  CHECK(alone.updates.updates.size() == 1);
  WriteStatus(folder,
              "{\"job_id\": \"a-1\", \"of_later_releases\": 1, "
              "\"effective_spec\": {\"training\": {\"seed\": 7}}}");
  for (const std::string& name : {folder, folder + "/updates.csv"}) {
    REQUIRE_OK_AND_ASSIGN(const RecordedRun run, ReadRun(name, NoJobs));
    REQUIRE(run.origin.spec.has_value());
    CHECK(run.origin.spec->training().seed() == 7);
    CHECK(run.updates.updates.size() == 1);
  }
}

TEST_CASE("Run source: a damaged job.json and a folder without a record are errors", "[cli]") {
  const std::string folder = Folder("damaged");
  WriteStatus(folder, "{\"job_id\"");
  CHECK_STATUS(ReadRun(folder, NoJobs).status(), absl::StatusCode::kInvalidArgument,
               folder + "/job.json: ");
  CHECK_STATUS(ReadRun(testing::TestPath("none"), NoJobs).status(), absl::StatusCode::kNotFound,
               "none/updates.csv");
}

TEST_CASE("Run source: a job's record is in its output folder", "[cli]") {
  v1::JobStatus status;
  status.set_output_directory(Folder("job"));
  status.set_output_host("node-1");
  const GetJob get_job = [&status](const std::string&) { return status; };
  CHECK_STATUS(ReadRun("a-1", get_job).status(), absl::StatusCode::kFailedPrecondition,
               "a-1: does not record its updates; submit it again with --set "
               "output.record_updates=true");
  status.mutable_effective_spec()->mutable_output()->set_record_updates(true);
  REQUIRE_OK_AND_ASSIGN(const RecordedRun run, ReadRun("a-1", get_job));
  CHECK(run.origin.name == "a-1");
  CHECK(run.origin.spec->output().record_updates());
  CHECK(run.updates.updates.size() == 1);
  status.set_output_directory("/none/of/this");
  CHECK_STATUS(ReadRun("a-1", get_job).status(), absl::StatusCode::kFailedPrecondition,
               "its record is /none/of/this/updates.csv on node-1");
  CHECK_STATUS(ReadRun("a-1", NoJobs).status(), absl::StatusCode::kNotFound, "no job a-1");
}

}  // namespace
}  // namespace capstan::cli::run_source_test
