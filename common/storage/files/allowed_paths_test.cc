#include "common/storage/files/allowed_paths.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::allowed_paths_test {
namespace {

AllowedPaths Parsed(const std::string& rules) {
  auto allowed = AllowedPaths::Parse({rules});
  REQUIRE_OK(allowed);
  return *std::move(allowed);
}

TEST_CASE("AllowedPaths: nothing is allowed without a rule", "[common][storage]") {
  CHECK_STATUS(AllowedPaths().Check("ann", "/data/x"), absl::StatusCode::kPermissionDenied,
               "\"/data/x\" lies below no folder that is allowed to jobs; allowed to ann are no "
               "folders (--allow-path)");
  CHECK_FALSE(AllowedPaths().Find("/data/x").has_value());
}

TEST_CASE("AllowedPaths: a rule allows what lies below its folder", "[common][storage]") {
  const AllowedPaths allowed = Parsed("/data,/srv/jobs/");
  for (const char* good : {"/data", "/data/", "/data/x", "//data/./x/y", "/srv/jobs/1", "/data/..x",
                           "/data/*.tsv", "/data/a.npz:x"}) {
    CAPTURE(good);
    CHECK(allowed.Check("", good).ok());
    CHECK(allowed.Find(good).has_value());
  }
  for (const char* bad : {"", "/", "data/x", "./data", "/dat", "/data2/x", "/srv", "/srv/job",
                          "/data/..", "/data/../data/x", "/etc/passwd", "/proc/self/fd/0"}) {
    CAPTURE(bad);
    CHECK(absl::IsPermissionDenied(allowed.Check("", bad)));
    CHECK_FALSE(allowed.Find(bad).has_value());
  }
  CHECK(absl::IsPermissionDenied(allowed.Check("", std::string("/data/x\0y", 9))));
}

TEST_CASE("AllowedPaths: a user's folder is allowed to that user alone", "[common][storage]") {
  const AllowedPaths allowed = Parsed("/data,ann=/home/ann,/scratch/{user}/jobs");
  CHECK(allowed.Check("ann", "/home/ann/x").ok());
  CHECK(allowed.Check("ann", "/scratch/ann/jobs/x").ok());
  for (const char* other : {"bob", "", "an", "ann/x", "{user}"}) {
    CAPTURE(other);
    CHECK(absl::IsPermissionDenied(allowed.Check(other, "/home/ann/x")));
    CHECK(absl::IsPermissionDenied(allowed.Check(other, "/scratch/ann/jobs/x")));
  }
  CHECK(absl::IsPermissionDenied(allowed.Check("", "/scratch//jobs/x")));
  CHECK_STATUS(allowed.Check("bob", "/home/ann"), absl::StatusCode::kPermissionDenied,
               "allowed to bob are /data, /scratch/bob/jobs (--allow-path)");
  // Find asks for no user: Check has judged the path before.
  CHECK(allowed.Find("/scratch/ann/jobs/x")->root == "/scratch/ann/jobs");
}

TEST_CASE("AllowedPaths: an own folder is opened, and named by no job", "[common][storage]") {
  AllowedPaths allowed = Parsed("/data");
  allowed.AddOwn("/data/own/");
  allowed.AddOwn("/var/lib/capstan");
  CHECK(absl::IsPermissionDenied(allowed.Check("ann", "/var/lib/capstan/jobs")));
  const auto place = allowed.Find("/data/own/a//b");
  REQUIRE(place.has_value());
  CHECK(place->root == "/data/own");  // The longest.
  CHECK(place->steps == std::vector<std::string>{"a", "b"});
}

TEST_CASE("AllowedPaths: wrong rules are named", "[common][storage]") {
  for (const char* bad : {"data", "../data", "/data/../etc", "=/data", "ann=data", "ann=", "ann"}) {
    CHECK_STATUS(AllowedPaths::Parse({bad}), absl::StatusCode::kInvalidArgument,
                 std::string("--allow-path: got \"") + bad + "\", expected PATH or USER=PATH");
  }
  CHECK(Parsed("").rules().empty());
}

TEST_CASE("AllowedPaths: commas part rules, and may be in the names of folders",
          "[common][storage]") {
  const AllowedPaths allowed = Parsed("/a,b,/c,ann=/d,e=f");
  CHECK(allowed.rules() == std::vector<std::string>{"/a,b", "/c", "ann=/d,e=f"});
}

TEST_CASE("AllowedPaths: a root that is a link is allowed by both names", "[common][storage]") {
  const std::string folder = testing::TestPath("allowed_paths_test");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder + "/real");
  std::filesystem::create_directory_symlink("real", folder + "/link");
  const AllowedPaths allowed = Parsed(folder + "/link");
  CHECK(allowed.Check("", folder + "/link/x").ok());
  CHECK(allowed.Check("", std::filesystem::canonical(folder + "/real").string() + "/x").ok());
  CHECK(absl::IsPermissionDenied(allowed.Check("", folder + "/x")));
}

}  // namespace
}  // namespace capstan::allowed_paths_test
