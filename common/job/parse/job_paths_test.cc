#include "common/job/parse/job_paths.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/storage/files/allowed_paths.h"
#include "common/testing/status_matchers.h"

namespace capstan::job_paths_test {
namespace {

v1::JobSpec JobWithAllPaths() {
  v1::JobSpec spec;
  for (v1::Split* split :
       {spec.mutable_data()->mutable_train(), spec.mutable_data()->mutable_test(),
        spec.mutable_data()->mutable_validation()}) {
    split->set_images("/data/images");
    split->set_labels("/data/labels");
    split->add_files("/data/a");
    split->add_files("/data/*.tsv");
  }
  spec.mutable_training()->set_initial_weights("/data/weights");
  spec.mutable_output()->set_directory("/data/out");
  spec.mutable_checkpoints()->set_directory("/data/saved");
  return spec;
}

// The paths of a message are the strings that hold this one: a new field shows up here.
int StringsWith(const std::string& text, const std::string& wanted) {
  int count = 0;
  for (size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) {
    ++count;
  }
  return count;
}

TEST_CASE("Job paths: each field that names a path is found", "[job]") {
  v1::JobSpec spec = JobWithAllPaths();
  const std::vector<JobPath> paths = PathsOf(&spec);
  CHECK(static_cast<int>(paths.size()) == StringsWith(spec.ShortDebugString(), "\"/data/"));
  CHECK(paths.front().field == "data.train.images");
  CHECK(paths.back().field == "checkpoints.directory");
  v1::JobSpec empty;
  CHECK(PathsOf(&empty).empty());
  CHECK(empty.ByteSizeLong() == 0);
}

TEST_CASE("Job paths: each path that is not allowed is refused, by its field", "[job]") {
  REQUIRE_OK_AND_ASSIGN(const AllowedPaths allowed, AllowedPaths::Parse({"/data,ann=/home/ann"}));
  CHECK(CheckJobPaths(allowed, "", JobWithAllPaths()).ok());
  v1::JobSpec spec = JobWithAllPaths();
  const std::vector<JobPath> paths = PathsOf(&spec);
  for (const JobPath& named : paths) {
    const std::string before = *named.path;
    for (const char* bad : {"/etc/passwd", "/data/../etc/passwd", "data/x", "/home/ann/x",
                            "/database", "/proc/self/fd/3"}) {
      *named.path = bad;
      CHECK_STATUS(CheckJobPaths(allowed, "bob", spec), absl::StatusCode::kPermissionDenied,
                   named.field + ": \"" + bad + "\" ");
    }
    *named.path = "/home/ann/x";
    CHECK(CheckJobPaths(allowed, "ann", spec).ok());
    *named.path = before;
  }
}

}  // namespace
}  // namespace capstan::job_paths_test
