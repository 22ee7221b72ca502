#include "common/storage/files/path_access.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/storage/files/allowed_paths.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/files/regular_file.h"
#include "common/storage/posix_disk.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::path_access_test {
namespace {

namespace fs = std::filesystem;

// An allowed folder `in` and another one, `out`, with all that may lead from one to the other. The
// process stays confined to the last one that was made.
class Folders {
 public:
  Folders() : top_(fs::canonical(testing::TestPath(".")).string() + "/path_access_test") {
    fs::remove_all(top_);
    fs::create_directories(in("sub"));
    fs::create_directories(out("sub"));
    for (const std::string& file : {in("file"), in("sub/file"), out("file"), out("sub/file")}) {
      std::ofstream(file) << "text";
    }
    fs::create_symlink(out("file"), in("link"));
    fs::create_symlink("../out/file", in("relative_link"));
    fs::create_symlink(out("none"), in("dangling_link"));
    fs::create_directory_symlink(out(""), in("folder_link"));
    fs::create_symlink("/proc/self/cwd", in("magic_link"));
    fs::create_symlink("/dev/zero", in("device_link"));
    fs::create_symlink("sub/file", in("inner_link"));
    REQUIRE(mkfifo(in("pipe").c_str(), 0600) == 0);
    REQUIRE_OK_AND_ASSIGN(AllowedPaths allowed, AllowedPaths::Parse({in("")}));
    REQUIRE_OK(ConfinePaths(std::move(allowed)));
  }

  std::string in(const std::string& name) const { return absl::StrCat(top_, "/in/", name); }
  std::string out(const std::string& name) const { return absl::StrCat(top_, "/out/", name); }

  // Paths of files that must be neither opened nor changed.
  std::vector<std::string> Forbidden() const {
    return {out("file"),
            "/etc/passwd",
            "/dev/zero",
            in("../out/file"),
            in("sub/../file"),
            in("link"),
            in("relative_link"),
            in("device_link"),
            in("folder_link/file"),
            in("folder_link/sub/file"),
            in("magic_link/file"),
            absl::StrCat("/proc/self/fd/", AT_FDCWD, "/file"),
            "/proc/self/cwd/file",
            "in/file",
            ""};
  }

 private:
  const std::string top_;
};

TEST_CASE("Path access: what leads out of the allowed folders is neither opened nor changed",
          "[common][storage]") {
  const Folders folders;
  struct stat status;
  using Call = std::function<int(const std::string&)>;
  const std::vector<std::pair<const char*, Call>> calls = {
      {"read", [](const std::string& path) { return OpenPath(path, O_RDONLY); }},
      {"write", [](const std::string& path) { return OpenPath(path, O_WRONLY | O_TRUNC); }},
      {"create", [](const std::string& path) { return OpenPath(path, O_RDWR | O_CREAT, 0600); }},
      {"stat", [&](const std::string& path) { return StatPath(path, &status); }},
      {"make a folder",
       [](const std::string& path) { return MakeOneFolder(path + "-new/x", 0700); }},
      {"make folders", [](const std::string& path) { return MakeFolders(path + "/new/x"); }},
  };
  for (const auto& [name, call] : calls) {
    for (const std::string& path : folders.Forbidden()) {
      CAPTURE(name, path);
      CHECK(call(path) == -1);
    }
  }
  for (const std::string& folder :
       {folders.out(""), folders.out("sub"), folders.in(".."), folders.in("sub/.."),
        folders.in("folder_link"), folders.in("folder_link/sub"), folders.in("magic_link"),
        std::string("/etc"), std::string("/proc/self/fd"), std::string(".")}) {
    CAPTURE(folder);
    CHECK(OpenFolder(folder) == nullptr);
  }
  // These act on a link itself, and follow those in front of it.
  for (const std::string& path : {folders.out("file"), folders.in("../out/file"),
                                  folders.in("folder_link/file"), std::string("/etc/passwd")}) {
    CAPTURE(path);
    CHECK(RemovePath(path) == -1);
    CHECK(RemoveTree(path) == -1);
    CHECK(RenamePath(path, folders.in("taken")) == -1);
    CHECK(RenamePath(folders.in("file"), path) == -1);
  }
  CHECK(OpenPath(folders.in("dangling_link"), O_WRONLY | O_CREAT, 0600) == -1);
  CHECK(RenamePath(folders.in(""), folders.in("sub/x")) == -1);
  CHECK(RemoveTree(folders.in("")) == -1);
  std::vector<std::string> left;
  for (const auto& entry : fs::recursive_directory_iterator(folders.out(""))) {
    left.push_back(entry.path().filename().string());
    if (entry.is_regular_file()) CHECK(testing::ReadFile(entry.path()) == "text");
  }
  std::sort(left.begin(), left.end());
  CHECK(left == std::vector<std::string>{"file", "file", "sub"});
}

TEST_CASE("Path access: errors tell a forbidden name from a link that leads out",
          "[common][storage]") {
  const Folders folders;
  CHECK(OpenPath(folders.out("file"), O_RDONLY) == -1);
  CHECK(errno == EACCES);
  CHECK(OpenPath(folders.in("link"), O_RDONLY) == -1);
  CHECK(errno == ELOOP);
  CHECK(OpenPath(folders.in("none"), O_RDONLY) == -1);
  CHECK(errno == ENOENT);
  CHECK_STATUS(OpenRegularFile(folders.out("file")), absl::StatusCode::kPermissionDenied,
               "lies below no folder that is allowed to jobs; allowed are ");
  CHECK_STATUS(OpenRegularFile(folders.in("link")), absl::StatusCode::kPermissionDenied,
               "link: cannot be read: a link leads out of the folder");
  CHECK_STATUS(OpenRegularFile(folders.in("pipe")), absl::StatusCode::kPermissionDenied,
               "a pipe, expected a regular file");
}

TEST_CASE("Path access: a pipe is neither waited for nor written into", "[common][storage]") {
  const Folders folders;
  CHECK(OpenPath(folders.in("pipe"), O_WRONLY | O_CREAT | O_TRUNC, 0600) == -1);
  const Descriptor reader(open(folders.in("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  CHECK(OpenPath(folders.in("pipe"), O_WRONLY | O_CREAT | O_TRUNC, 0600) == -1);
  CHECK(errno == EACCES);
}

TEST_CASE("Path access: all goes well below an allowed folder", "[common][storage]") {
  const Folders folders;
  PosixDisk disk;
  for (const char* name : {"file", "inner_link", "sub/file", "./sub//file"}) {
    CAPTURE(name);
    CHECK(OpenRegularFile(folders.in(name)).ok());
  }
  REQUIRE(MakeFolders(folders.in("a/b/c")) == 0);
  REQUIRE(MakeFolders(folders.in("a/b/c")) == 0);
  REQUIRE(MakeFolders(folders.in("")) == 0);
  CHECK(MakeFolders(folders.in("file/x")) == -1);
  CHECK(errno == ENOTDIR);
  REQUIRE_OK(disk.MakeFolder(folders.in("a/d/e")));
  REQUIRE_OK_AND_ASSIGN(auto file, disk.Create(folders.in("a/d/e/new")));
  REQUIRE_OK(file->Append("abc"));
  REQUIRE_OK(file->Sync());
  REQUIRE_OK(disk.Rename(folders.in("a/d/e/new"), folders.in("a/b/c/renamed")));
  REQUIRE_OK(disk.SyncFolder(folders.in("a/b/c")));
  CHECK(disk.Read(folders.in("a/b/c/renamed"), 10).value() == "abc");
  CHECK(disk.List(folders.in("a")).value() == std::vector<std::string>{"b", "d"});
  REQUIRE_OK(disk.Remove(folders.in("a/d/e")));
  CHECK_FALSE(fs::exists(folders.in("a/d/e")));
  fs::create_directory_symlink(folders.out(""), folders.in("a/b/out"));
  REQUIRE(RemoveTree(folders.in("a")) == 0);
  REQUIRE(RemoveTree(folders.in("a")) == 0);
  CHECK_FALSE(fs::exists(folders.in("a")));
  CHECK(fs::exists(folders.out("file")));
}

TEST_CASE("Path access: a held folder is reached by its descriptor, while it is held",
          "[common][storage]") {
  const Folders folders;
  const Descriptor held(OpenPath(folders.in("sub"), O_RDONLY | O_DIRECTORY));
  const std::string path = absl::StrCat("/proc/self/fd/", held.get());
  CHECK(OpenPath(path + "/file", O_RDONLY) == -1);
  HoldFolder(held.get());
  CHECK(OpenRegularFile(path + "/file").ok());
  CHECK(OpenPath(path + "/../file", O_RDONLY) == -1);
  CHECK(OpenPath(absl::StrCat(path, "0/file"), O_RDONLY) == -1);
  ReleaseFolder(held.get());
  CHECK(OpenPath(path + "/file", O_RDONLY) == -1);
}

TEST_CASE("Path access: a link that is swapped in meanwhile does not lead out",
          "[common][storage]") {
  const Folders folders;
  std::ofstream(folders.out("sub/file"), std::ios::trunc) << "secret";
  fs::create_directory_symlink(folders.out("sub"), folders.in("evil"));
  fs::create_directory(folders.in("good"));
  std::ofstream(folders.in("good/file")) << "text";
  fs::create_directory(folders.in("swapped"));
  std::ofstream(folders.in("swapped/file")) << "text";
  std::atomic<bool> stop{false};
  std::thread swapper([&] {
    // Exchanges the folder and the link all the time, as one step each.
    while (!stop) {
      renameat2(AT_FDCWD, folders.in("swapped").c_str(), AT_FDCWD, folders.in("evil").c_str(),
                RENAME_EXCHANGE);
    }
  });
  int opened = 0, refused = 0;
  bool leaked = false;
  for (int i = 0; i < 20'000 || ((opened == 0 || refused == 0) && i < 2'000'000); ++i) {
    const Descriptor fd(OpenPath(folders.in("swapped/file"), O_RDONLY));
    if (!fd.ok()) {
      ++refused;
      continue;
    }
    ++opened;
    char bytes[6] = {};
    leaked = leaked || read(fd.get(), bytes, sizeof(bytes)) != 4;
  }
  stop = true;
  swapper.join();
  CHECK_FALSE(leaked);
  CHECK(opened > 0);
  CHECK(refused > 0);
}

TEST_CASE("Path access: a descriptor does not pass to another program", "[common][storage]") {
  const Folders folders;
  const Descriptor fd(OpenPath(folders.in("file"), O_RDONLY));
  CHECK((fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

}  // namespace
}  // namespace capstan::path_access_test
