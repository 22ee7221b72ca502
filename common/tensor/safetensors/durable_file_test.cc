#include "common/tensor/safetensors/durable_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace {

int sync_error = 0;  // The next call of sync_file_range fails with it; 0: it does not.

}  // namespace

extern "C" int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned flags) {
  if (sync_error == 0) {
    return static_cast<int>(syscall(SYS_sync_file_range, fd, offset, bytes, flags));
  }
  errno = std::exchange(sync_error, 0);
  return -1;
}

namespace capstan::durable_file_test {
namespace {

using testing::ReadFile;
using testing::TestPath;

void Ignore(const std::string&, int64_t) {}

TEST_CASE("Durable file: parts follow one another, and a file is replaced whole",
          "[common][tensor]") {
  const std::string folder = TestPath("a/b");
  REQUIRE_OK(MakeDirectories(folder));
  REQUIRE_OK(MakeDirectories(folder));
  const std::string path = folder + "/file";
  REQUIRE_OK(WriteFileDurably(path, {"a long first text, ", "", "in parts"}));
  CHECK(ReadFile(path) == "a long first text, in parts");
  REQUIRE_OK(WriteFileDurably(path, {"short"}));
  CHECK(ReadFile(path) == "short");
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
}

TEST_CASE("Durable file: the folders that are made for it are private", "[common][tensor]") {
  const std::string folder = TestPath("private/inside");
  const mode_t old = umask(0);
  const absl::Status made = MakeDirectories(folder);
  umask(old);
  REQUIRE_OK(made);
  const auto owner_only = std::filesystem::perms::owner_all;
  CHECK(std::filesystem::status(folder).permissions() == owner_only);
  CHECK(std::filesystem::status(TestPath("private")).permissions() == owner_only);
}

TEST_CASE("Durable file: two of one path do not write into each other", "[common][tensor]") {
  const std::string folder = TestPath("two");
  REQUIRE_OK(MakeDirectories(folder));
  const std::string path = folder + "/file";
  REQUIRE_OK_AND_ASSIGN(const auto one, DurableFile::Create(path));
  REQUIRE_OK(one->Append("the first"));
  REQUIRE_OK_AND_ASSIGN(const auto other, DurableFile::Create(path));
  REQUIRE_OK(other->Append("another"));
  REQUIRE_OK(one->Commit());
  CHECK(ReadFile(path) == "the first");
  REQUIRE_OK(other->Commit());
  CHECK(ReadFile(path) == "another");
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
}

TEST_CASE("Durable file: one that comes in pieces is there once it is committed",
          "[common][tensor]") {
  const std::string folder = TestPath("pieces");
  REQUIRE_OK(MakeDirectories(folder));
  const std::string path = folder + "/file";
  {
    REQUIRE_OK_AND_ASSIGN(const auto file, DurableFile::Create(path));
    REQUIRE_OK_AND_ASSIGN(const auto other, DurableFile::Create(folder + "/other"));
    const std::string large(3 << 20, 'x');  // More than is copied at a time.
    REQUIRE_OK(file->Append("0123"));
    REQUIRE_OK(other->Append("<"));
    REQUIRE_OK(other->Append(large));
    REQUIRE_OK(file->AppendFrom(*other));
    REQUIRE_OK(file->Overwrite(1, "--"));
    REQUIRE_OK(file->Append(">"));
    CHECK(file->bytes() == 4 + 1 + (3 << 20) + 1);
    CHECK_FALSE(std::filesystem::exists(path));
    REQUIRE_OK(file->Commit());
    CHECK(ReadFile(path) == "0--3<" + large + ">");
  }
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);  // No other one.
}

TEST_CASE("Durable file: its writer hears of every byte, written and then synced",
          "[common][tensor]") {
  const std::string folder = TestPath("told");
  REQUIRE_OK(MakeDirectories(folder));
  const std::string piece(40 << 20, 'x');
  const int64_t bytes = 2 * (40 << 20) + 1;
  std::map<std::string, std::vector<int64_t>> told;
  const auto listen = [&told](const std::string& what, int64_t more) {
    told[what].push_back(more);
  };
  REQUIRE_OK(WriteFileDurably(folder + "/file", {piece, piece, "y"}, listen));
  for (const char* what : {"bytes written", "bytes synced"}) {
    CHECK(std::accumulate(told[what].begin(), told[what].end(), int64_t{0}) == bytes);
    CHECK(told[what].size() >= 2);
  }
  CHECK(told.size() == 2);
}

TEST_CASE("Durable file: bytes that the disk lost while it reported progress are an error",
          "[common][tensor]") {
  const std::string folder = TestPath("lost");
  REQUIRE_OK(MakeDirectories(folder));
  const std::string path = folder + "/file";
  for (const auto& [error, code] : {std::pair(EIO, absl::StatusCode::kUnknown),
                                    std::pair(ENOSPC, absl::StatusCode::kResourceExhausted)}) {
    sync_error = error;
    CHECK_STATUS(WriteFileDurably(path, {"x"}, Ignore), code, path);
    CHECK(std::filesystem::is_empty(folder));
  }
  // A file that cannot be synced in pieces is synced as a whole.
  for (const int error : {ENOSYS, EINVAL, ESPIPE}) {
    sync_error = error;
    REQUIRE_OK(WriteFileDurably(path, {"x"}, Ignore));
  }
}

TEST_CASE("Durable file: a failure names the path and leaves nothing", "[common][tensor]") {
  const std::string folder = TestPath("c");
  REQUIRE_OK(MakeDirectories(folder + "/taken/inside"));
  CHECK_STATUS(WriteFileDurably(folder + "/missing/file", {"x"}), absl::StatusCode::kNotFound,
               folder + "/missing/file");
  // A folder that is not empty cannot be renamed over.
  CHECK_FALSE(WriteFileDurably(folder + "/taken", {"x"}).ok());
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
  REQUIRE_OK(WriteFileDurably(folder + "/file", {"x"}));
  CHECK_FALSE(MakeDirectories(folder + "/file/under").ok());
}

}  // namespace
}  // namespace capstan::durable_file_test
