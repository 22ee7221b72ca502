#include "common/examples/streams/input_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <iostream>
#include <string>

#include "common/data/testing/test_files.h"
#include "common/testing/status_matchers.h"

namespace capstan::input_file_test {
namespace {

using ::capstan::testing::TemporaryFolder;

TEST_CASE("Input file: reads at any place, and less at the end", "[common][examples]") {
  const TemporaryFolder folder;
  REQUIRE_OK_AND_ASSIGN(const InputFile file, InputFile::Open(folder.Write("f", {'a', 'b', 'c'})));
  CHECK(file.bytes() == 3);
  CHECK(file.path() == folder.Path("f"));
  std::string room(2, '\0');
  const auto read = [&](int64_t offset) {
    room = "--";
    REQUIRE_OK_AND_ASSIGN(const size_t got, file.ReadAt(offset, absl::MakeSpan(room)));
    return room.substr(0, got);
  };
  CHECK(read(1) == "bc");
  CHECK(read(0) == "ab");
  CHECK(read(2) == "c");
  CHECK(read(3).empty());
  CHECK(read(int64_t{1} << 40).empty());
}

TEST_CASE("Input file: a missing file is not found, by its name", "[common][examples]") {
  const TemporaryFolder folder;
  CHECK_STATUS(InputFile::Open(folder.Path("none")), absl::StatusCode::kNotFound,
               folder.Path("none: cannot be read"));
  CHECK_STATUS(InputFile::Open(folder.Write("f", {}) + "/below"), absl::StatusCode::kNotFound,
               "f/below: cannot be read");
}

TEST_CASE("Input file: a failing disk is told from a missing right", "[common][examples]") {
  // Nothing is mapped at address 0: Linux says EIO, as for a broken disk.
  REQUIRE_OK_AND_ASSIGN(const InputFile file, InputFile::Open("/proc/self/mem"));
  std::string room(8, '\0');
  CHECK_STATUS(file.ReadAt(0, absl::MakeSpan(room)), absl::StatusCode::kDataLoss,
               "/proc/self/mem: cannot be read");
}

TEST_CASE("Input file: too many open files are told from a missing right", "[common][examples]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("f", {1});
  rlimit limit;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const absl::Status status = InputFile::Open(path).status();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK_STATUS(status, absl::StatusCode::kResourceExhausted, path);
}

TEST_CASE("Input file: a folder and a pipe are refused without waiting", "[common][examples]") {
  const TemporaryFolder folder;
  CHECK_STATUS(InputFile::Open(folder.Path(".")), absl::StatusCode::kPermissionDenied,
               "a folder, expected a regular file");
  REQUIRE(mkfifo(folder.Path("pipe").c_str(), 0600) == 0);
  CHECK_STATUS(InputFile::Open(folder.Path("pipe")), absl::StatusCode::kPermissionDenied,
               "a pipe, expected a regular file");
  CHECK_STATUS(InputFile::Open("/dev/zero"), absl::StatusCode::kPermissionDenied,
               "/dev/zero: cannot be read: a device, expected a regular file");
}

TEST_CASE("Input file: a file without the right to read it is refused", "[common][examples]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("secret", {1});
  REQUIRE(chmod(path.c_str(), 0) == 0);
  if (access(path.c_str(), R_OK) == 0) {
    std::cout << "skipped: this user (root?) may read every file\n";
    return;
  }
  CHECK_STATUS(InputFile::Open(path), absl::StatusCode::kPermissionDenied, path);
}

}  // namespace
}  // namespace capstan::input_file_test
