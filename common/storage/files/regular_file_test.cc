#include "common/storage/files/regular_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::regular_file_test {
namespace {

std::string Folder() {
  const std::string folder = testing::TestPath("regular_file_test");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

TEST_CASE("Regular file: it is opened with its size, also by a link", "[common][storage]") {
  const std::string folder = Folder();
  std::ofstream(folder + "/file") << "abc";
  std::filesystem::create_symlink("file", folder + "/link");
  for (const std::string& path : {folder + "/file", folder + "/link"}) {
    REQUIRE_OK_AND_ASSIGN(const RegularFile file, OpenRegularFile(path));
    CHECK(file.bytes == 3);
    std::string room = "----";
    REQUIRE_OK_AND_ASSIGN(const size_t got, ReadFileAt(file, path, 1, absl::MakeSpan(room)));
    CHECK(room.substr(0, got) == "bc");
    CHECK((fcntl(file.fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
  }
}

TEST_CASE("Regular file: what is none is refused without waiting, and named", "[common][storage]") {
  const std::string folder = Folder();
  CHECK_STATUS(OpenRegularFile(folder), absl::StatusCode::kPermissionDenied,
               folder + ": cannot be read: a folder, expected a regular file");
  const std::string pipe = folder + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_STATUS(OpenRegularFile(pipe), absl::StatusCode::kPermissionDenied,
               pipe + ": cannot be read: a pipe, expected a regular file");
  CHECK_STATUS(OpenRegularFile("/dev/zero"), absl::StatusCode::kPermissionDenied,
               "/dev/zero: cannot be read: a device, expected a regular file");
  std::filesystem::create_symlink("/dev/zero", folder + "/zero");
  CHECK_STATUS(OpenRegularFile(folder + "/zero"), absl::StatusCode::kPermissionDenied,
               folder + "/zero: cannot be read: a device, expected a regular file");
}

TEST_CASE("Regular file: a socket is refused by its kind", "[common][storage]") {
  // The path of a socket has at most 107 bytes, and the test's folder may have more.
  const std::string path = "/tmp/capstan-regular-file-test-" + std::to_string(getpid());
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
  REQUIRE(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  const absl::Status status = OpenRegularFile(path).status();
  unlink(path.c_str());
  CHECK_STATUS(status, absl::StatusCode::kPermissionDenied,
               path + ": cannot be read: a socket, expected a regular file");
}

TEST_CASE("Regular file: a missing one and too many open ones are told apart",
          "[common][storage]") {
  const std::string folder = Folder();
  CHECK_STATUS(OpenRegularFile(folder + "/none"), absl::StatusCode::kNotFound,
               folder + "/none: cannot be read: No such file");
  std::ofstream(folder + "/file") << "abc";
  CHECK_STATUS(OpenRegularFile(folder + "/file/below"), absl::StatusCode::kNotFound, "file/below");
  rlimit limit;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const absl::Status status = OpenRegularFile(folder + "/file").status();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK_STATUS(status, absl::StatusCode::kResourceExhausted, folder + "/file");
}

}  // namespace
}  // namespace capstan::regular_file_test
