// Tests of both disks without faults, of ProbeSpace and of FolderLock.
#include "common/storage/disk.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "common/storage/files/folder_lock.h"
#include "common/storage/posix_disk.h"
#include "common/storage/space_probe.h"
#include "common/storage/testing/sim_disk.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::disk_test {
namespace {

void Write(Disk& disk, const std::string& path, const std::string& bytes) {
  absl::StatusOr<std::unique_ptr<WritableFile>> file = disk.Create(path);
  REQUIRE_OK(file);
  REQUIRE_OK((*file)->Append(bytes));
  REQUIRE_OK((*file)->Sync());
}

// A path that is no regular file is neither waited for nor read.
void CheckRefusesNoFiles(Disk& disk, const std::string& folder) {
  const std::string pipe = folder + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const auto& [path, kind] :
       {std::pair(pipe, "a pipe"), {"/dev/zero", "a device"}, {folder, "a folder"}}) {
    const std::string text = "cannot read " + path + ": it is " + kind;
    CHECK_STATUS(disk.Read(path, 10), absl::StatusCode::kUnavailable, text);
    CHECK_STATUS(disk.ReadPart(path, 0, 1), absl::StatusCode::kUnavailable, text);
  }
  REQUIRE_OK(disk.Remove(pipe));
}

TEST_CASE("Disk: real and simulated, files and names", "[common][storage]") {
  const bool real = GENERATE(true, false);
  std::unique_ptr<Disk> disk;
  if (real) {
    disk = std::make_unique<PosixDisk>();
  } else {
    disk = std::make_unique<SimDisk>(1);
  }
  const std::string top = testing::TestPath("disk_test");
  const std::string folder = top + "/a/b";
  REQUIRE_OK(disk->MakeFolder(folder));
  REQUIRE_OK(disk->MakeFolder(folder));
  Write(*disk, folder + "/two", "old");
  Write(*disk, folder + "/two", "2");
  Write(*disk, folder + "/one", std::string("\0\xFF", 2));
  REQUIRE_OK(disk->SyncFolder(folder));

  REQUIRE_OK_AND_ASSIGN(const std::string two, disk->Read(folder + "/two", 1));
  CHECK(two == "2");
  REQUIRE_OK_AND_ASSIGN(const std::vector<std::string> names, disk->List(folder));
  CHECK(names == std::vector<std::string>{"one", "two"});
  REQUIRE_OK_AND_ASSIGN(const std::vector<std::string> above, disk->List(top + "/a"));
  CHECK(above == std::vector<std::string>{"b"});

  REQUIRE_OK(disk->Rename(folder + "/one", folder + "/two"));
  REQUIRE_OK_AND_ASSIGN(const std::string one, disk->Read(folder + "/two", 10));
  CHECK(one == std::string("\0\xFF", 2));

  REQUIRE_OK_AND_ASSIGN(const std::string part, disk->ReadPart(folder + "/two", 1, 1));
  CHECK(part == "\xFF");
  CHECK_STATUS(disk->ReadPart(folder + "/two", 1, 2), absl::StatusCode::kDataLoss,
               "two ends at byte 2, expected 3");
  CHECK_STATUS(disk->ReadPart(folder + "/three", 1, 2), absl::StatusCode::kNotFound, "three");
  CHECK_STATUS(disk->Read(folder + "/two", 1), absl::StatusCode::kResourceExhausted,
               "expected at most 1");
  CHECK_STATUS(disk->Read(folder + "/one", 10), absl::StatusCode::kNotFound, folder + "/one: ");
  CHECK_STATUS(disk->Create(top + "/none/x"), absl::StatusCode::kNotFound, "/none/x");
  CHECK_STATUS(disk->List(top + "/none"), absl::StatusCode::kNotFound, "/none");
  CHECK_STATUS(disk->SyncFolder(top + "/none"), absl::StatusCode::kNotFound, "/none");
  CHECK_STATUS(disk->Rename(folder + "/one", folder + "/x"), absl::StatusCode::kNotFound, "one");
  CHECK_STATUS(disk->Remove(folder), absl::StatusCode::kUnavailable, folder);
  CHECK_STATUS(disk->MakeFolder(folder + "/two/x"), absl::StatusCode::kUnavailable, "two");

  if (real) CheckRefusesNoFiles(*disk, top);
  REQUIRE_OK(disk->Remove(folder + "/two"));
  CHECK_STATUS(disk->Remove(folder + "/two"), absl::StatusCode::kNotFound, "two");
  REQUIRE_OK(disk->Remove(folder));
  CHECK_STATUS(disk->List(folder), absl::StatusCode::kNotFound, folder);
}

TEST_CASE("ProbeSpace: room is there, or is not, and nothing is left of the question",
          "[common][storage]") {
  PosixDisk disk;
  const std::string folder = testing::TestPath("probed");
  CHECK_STATUS(ProbeSpace(folder, 1), absl::StatusCode::kNotFound, folder);
  REQUIRE_OK(disk.MakeFolder(folder));
  REQUIRE_OK(ProbeSpace(folder, 1 << 20));
  CHECK_STATUS(ProbeSpace(folder, int64_t{1} << 62), absl::StatusCode::kResourceExhausted, folder);
  REQUIRE_OK_AND_ASSIGN(const std::vector<std::string> names, disk.List(folder));
  CHECK(names.empty());
}

TEST_CASE("PosixDisk: no space is told apart from other failures", "[common][storage]") {
  PosixDisk disk;
  if (access("/dev/full", W_OK) == 0) {
    REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<WritableFile> full, disk.Create("/dev/full"));
    CHECK_STATUS(full->Append("x"), absl::StatusCode::kResourceExhausted, "/dev/full");
  }
  // A limit on the size of a file cuts a write short: what fits is written, then it fails.
  const std::string path = testing::TestPath("limited");
  REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<WritableFile> file, disk.Create(path));
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small = {.rlim_cur = 10, .rlim_max = before.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const absl::Status status = file->Append("0123456789abcdef");
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old_handler);
  CHECK_STATUS(status, absl::StatusCode::kResourceExhausted, path);
  REQUIRE_OK_AND_ASSIGN(const std::string bytes, disk.Read(path, 100));
  CHECK(bytes == "0123456789");
  CHECK_STATUS(disk.Create("/proc/none"), absl::StatusCode::kNotFound, "/proc/none");
  CHECK_STATUS(disk.Read("/", 100), absl::StatusCode::kUnavailable, "it is a folder");
}

TEST_CASE("PosixDisk: a new file is nobody else's, and a link in its place is not followed",
          "[common][storage]") {
  PosixDisk disk;
  const std::string folder = testing::TestPath("planted");
  REQUIRE_OK(disk.MakeFolder(folder));
  Write(disk, folder + "/victim", "precious");
  const std::string name = folder + "/part.tmp";
  REQUIRE(symlink("victim", name.c_str()) == 0);
  Write(disk, name, "new");
  CHECK(testing::ReadFile(folder + "/victim") == "precious");
  CHECK(testing::ReadFile(name) == "new");
  REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<WritableFile> first, disk.Create(name));
  REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<WritableFile> second, disk.Create(name));
  REQUIRE_OK(second->Append("second"));
  REQUIRE_OK(first->Append("the first, which is longer"));
  CHECK(testing::ReadFile(name) == "second");
  const std::string pipe = folder + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_STATUS(disk.Create(pipe), absl::StatusCode::kUnavailable, pipe);  // It does not wait.
}

TEST_CASE("FolderLock: one holder at a time", "[common][storage]") {
  PosixDisk disk;
  const std::string folder = testing::TestPath("locked");
  REQUIRE_OK(disk.MakeFolder(folder));
  {
    REQUIRE_OK_AND_ASSIGN(FolderLock first, FolderLock::Take(folder));
    CHECK_STATUS(FolderLock::Take(folder), absl::StatusCode::kFailedPrecondition,
                 "in use by process " + std::to_string(getpid()));
    const FolderLock moved = std::move(first);
    CHECK_STATUS(FolderLock::Take(folder), absl::StatusCode::kFailedPrecondition, folder);
  }
  REQUIRE_OK(FolderLock::Take(folder));
  CHECK_STATUS(FolderLock::Take(folder + "/none"), absl::StatusCode::kUnavailable, "/none");
}

}  // namespace
}  // namespace capstan::disk_test
