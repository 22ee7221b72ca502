#include "common/storage/files/replace_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <iterator>
#include <string>

#include "common/storage/files/private_files.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::replace_file_test {
namespace {

using testing::ReadFile;
using testing::TestPath;

std::string MakeFolder(const std::string& name) {
  const std::string folder = TestPath(name);
  REQUIRE(!MakePrivateFolders(folder));
  return folder;
}

int FilesIn(const std::string& folder) {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST_CASE("ReplaceFile: the whole file is replaced, and the name of a link is, not its target",
          "[storage]") {
  const std::string folder = MakeFolder("replaced");
  const std::string path = folder + "/file";
  REQUIRE_OK(ReplaceFile(path, "a long first text"));
  REQUIRE_OK(ReplaceFile(path, "short"));
  CHECK(ReadFile(path) == "short");
  struct stat status = {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == kPrivateFileMode);
  const std::string link = folder + "/link";
  REQUIRE(symlink(path.c_str(), link.c_str()) == 0);
  REQUIRE_OK(ReplaceFile(link, "new"));
  CHECK(ReadFile(link) == "new");
  CHECK(ReadFile(path) == "short");
  CHECK(FilesIn(folder) == 2);
}

TEST_CASE("ReplaceFile: a failure names the path and leaves nothing", "[storage]") {
  const std::string folder = MakeFolder("not_replaced");
  CHECK_STATUS(ReplaceFile(folder + "/none/file", "x"), absl::StatusCode::kNotFound,
               "cannot write " + folder + "/none/file");
  REQUIRE(!MakePrivateFolders(folder + "/taken/inside"));
  CHECK_STATUS(ReplaceFile(folder + "/taken", "x"), absl::StatusCode::kUnavailable, "/taken");
  CHECK(FilesIn(folder) == 1);
}

TEST_CASE("MakeTemporaryBeside: each has a name of its own", "[storage]") {
  const std::string path = MakeFolder("temporary") + "/file";
  REQUIRE_OK_AND_ASSIGN(const TemporaryFile one, MakeTemporaryBeside(path));
  REQUIRE_OK_AND_ASSIGN(const TemporaryFile other, MakeTemporaryBeside(path));
  CHECK(one.path != other.path);
  CHECK(one.path.find(path + ".tmp-") == 0);
  CHECK_STATUS(MakeTemporaryBeside(path + "/none/file"), absl::StatusCode::kNotFound, path);
}

}  // namespace
}  // namespace capstan::replace_file_test
