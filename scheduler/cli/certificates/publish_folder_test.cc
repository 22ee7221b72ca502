#include "scheduler/cli/certificates/publish_folder.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::cli::publish_folder_test {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using testing::ReadFile;

// An empty folder in which folders are published.
struct Fixture {
  Fixture() {
    fs::remove_all(root);
    fs::create_directories(root);
  }
  absl::StatusOr<std::string> Publish(const std::string& content,
                                      IfFolderExists if_exists = IfFolderExists::kRefuse) const {
    return PublishFolder(
        path, {{.name = "a", .content = content}, {.name = "b", .content = "b", .mode = 0600}},
        {"a", "b"}, if_exists);
  }
  int CountEntries() const {
    return static_cast<int>(std::distance(fs::directory_iterator(root), fs::directory_iterator()));
  }

  const std::string root = testing::TestPath("publish");
  const std::string path = root + "/out";
};

mode_t ModeOf(const std::string& path) {
  struct stat file {};
  REQUIRE(stat(path.c_str(), &file) == 0);
  return file.st_mode & 07777;
}

TEST_CASE("PublishFolder: a new folder has its files and modes, and nothing lies beside it",
          "[cli]") {
  Fixture f;
  const mode_t umask_before = umask(0077);
  SECTION("where nothing is") { REQUIRE_OK(f.Publish("1")); }
  SECTION("where an empty folder is") {
    fs::create_directories(f.path);
    REQUIRE_OK(f.Publish("1"));
  }
  SECTION("with a slash at the end") {
    REQUIRE_OK(PublishFolder(
        f.path + "/", {{.name = "a", .content = "1"}, {.name = "b", .content = "b", .mode = 0600}},
        {}, IfFolderExists::kRefuse));
  }
  umask(umask_before);
  CHECK(ReadFile(f.path + "/a") == "1");
  CHECK(ModeOf(f.path) == 0700);
  CHECK(ModeOf(f.path + "/a") == 0644);
  CHECK(ModeOf(f.path + "/b") == 0600);
  CHECK(f.CountEntries() == 1);
}

TEST_CASE("PublishFolder: a folder with files is refused, or exchanged as a whole", "[cli]") {
  Fixture f;
  REQUIRE_OK(f.Publish("1"));
  CHECK_STATUS(f.Publish("2"), StatusCode::kAlreadyExists, f.path);
  CHECK(ReadFile(f.path + "/a") == "1");
  REQUIRE_OK_AND_ASSIGN(const std::string former, f.Publish("2", IfFolderExists::kReplace));
  CHECK(former.empty());
  CHECK(ReadFile(f.path + "/a") == "2");
  CHECK(f.CountEntries() == 1);
}

TEST_CASE("PublishFolder: a folder with files of others is never replaced", "[cli]") {
  Fixture f;
  fs::create_directories(f.path);
  std::ofstream(f.path + "/thesis.tex") << "text";
  CHECK_STATUS(f.Publish("1", IfFolderExists::kReplace), StatusCode::kFailedPrecondition,
               "thesis.tex");
  CHECK(ReadFile(f.path + "/thesis.tex") == "text");
  CHECK(f.CountEntries() == 1);
}

TEST_CASE("PublishFolder: a symbolic link is swapped, and its former folder stays", "[cli]") {
  Fixture f;
  fs::create_directories(f.root + "/first");
  std::ofstream(f.root + "/first/a") << "1";
  fs::create_directory_symlink("first", f.path);
  SECTION("the link leads to a folder") {
    REQUIRE_OK_AND_ASSIGN(const std::string former, f.Publish("2"));
    CHECK(fs::equivalent(former, f.root + "/first"));
    CHECK(ReadFile(f.root + "/first/a") == "1");
  }
  SECTION("the folder was removed") {
    fs::remove_all(f.root + "/first");
    REQUIRE_OK_AND_ASSIGN(const std::string former, f.Publish("2"));
    CHECK(former.empty());
    fs::create_directories(f.root + "/first");
  }
  CHECK(fs::is_symlink(f.path));
  CHECK(fs::read_symlink(f.path).is_relative());
  CHECK(ReadFile(f.path + "/a") == "2");
  CHECK(f.CountEntries() == 3);  // The link, and both folders.
}

TEST_CASE("PublishFolder: what cannot become a folder is named and stays as it is", "[cli]") {
  Fixture f;
  SECTION("a file") {
    std::ofstream(f.path) << "text";
    CHECK_STATUS(f.Publish("1", IfFolderExists::kReplace), StatusCode::kFailedPrecondition, f.path);
    CHECK(ReadFile(f.path) == "text");
  }
  SECTION("a symbolic link to a file") {
    std::ofstream(f.root + "/file") << "text";
    fs::create_symlink("file", f.path);
    CHECK_STATUS(f.Publish("1"), StatusCode::kFailedPrecondition, f.path);
    CHECK(fs::read_symlink(f.path) == "file");
  }
  SECTION("a path without a name") {
    for (const char* path : {"", "/", "..", "a/.."}) {
      CHECK_STATUS(PublishFolder(path, {}, {}, IfFolderExists::kReplace),
                   StatusCode::kInvalidArgument, "name of a folder");
    }
  }
  SECTION("a missing parent") {
    CHECK_STATUS(CheckMayPublish(f.root + "/none/out", {}, IfFolderExists::kRefuse),
                 StatusCode::kNotFound, f.root + "/none");
  }
}

TEST_CASE("PublishFolder: if a file cannot be written, nothing is left", "[cli]") {
  Fixture f;
  const std::vector<FolderFile> files = {{.name = "key", .content = "secret", .mode = 0600},
                                         {.name = "no/such", .content = ""}};
  CHECK_STATUS(PublishFolder(f.path, files, {}, IfFolderExists::kRefuse), StatusCode::kNotFound,
               "no/such");
  CHECK(f.CountEntries() == 0);
}

}  // namespace
}  // namespace capstan::cli::publish_folder_test
