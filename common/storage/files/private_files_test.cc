#include "common/storage/files/private_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/storage/files/descriptor.h"
#include "common/testing/test_paths.h"

namespace capstan::private_files_test {
namespace {

mode_t ModeOf(const std::string& path) {
  struct stat status = {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

// Sets the umask, and restores the old one.
class ScopedUmask {
 public:
  explicit ScopedUmask(mode_t mask) : old_(umask(mask)) {}
  ~ScopedUmask() { umask(old_); }

 private:
  const mode_t old_;
};

TEST_CASE("MakePrivateFolders: all that it makes is private, and what is there stays as it is",
          "[storage]") {
  const ScopedUmask open_to_all(0);
  const std::string root = testing::TestPath("private_folders");
  REQUIRE(mkdir(root.c_str(), 0755) == 0);
  CHECK(!MakePrivateFolders(root + "/a/b/"));
  CHECK(ModeOf(root) == 0755);
  CHECK(ModeOf(root + "/a") == kPrivateFolderMode);
  CHECK(ModeOf(root + "/a/b") == kPrivateFolderMode);
  CHECK(!MakePrivateFolders(root + "/a/b"));
  std::ofstream(root + "/file") << "x";
  CHECK(MakePrivateFolders(root + "/file") == std::errc::not_a_directory);
  CHECK(MakePrivateFolders(root + "/file/below") == std::errc::not_a_directory);
  CHECK(MakePrivateFolders("") == std::errc::no_such_file_or_directory);
}

TEST_CASE("KeepNewFilesPrivate: modes that a library asks for are cut", "[storage]") {
  const ScopedUmask restored(0);
  KeepNewFilesPrivate();
  const std::string root = testing::TestPath("private_files");
  REQUIRE(mkdir(root.c_str(), 0777) == 0);
  CHECK(ModeOf(root) == kPrivateFolderMode);
  const std::string path = root + "/file";
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  CHECK(ModeOf(path) == kPrivateFileMode);
}

}  // namespace
}  // namespace capstan::private_files_test
