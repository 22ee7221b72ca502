#include "common/storage/files/file_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "absl/types/span.h"
#include "common/storage/files/descriptor.h"
#include "common/testing/test_paths.h"

namespace capstan::file_bytes_test {
namespace {

using testing::TestPath;

constexpr size_t kMoreThanAPipe = 1 << 20;  // A pipe holds 64 KiB: write(2) waits for its reader.

TEST_CASE("WriteAll: a pipe takes all, however small its buffer") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const std::string bytes(kMoreThanAPipe, 'x');
  size_t arrived = 0;
  std::thread reader([&] {
    char part[1000];
    for (ssize_t n; (n = read(from.get(), part, sizeof part)) > 0;) arrived += n;
  });
  const bool written = WriteAll(to.get(), bytes);
  close(to.Release());  // The end, for the reader.
  reader.join();
  CHECK(written);
  CHECK(arrived == bytes.size());
}

TEST_CASE("WriteAllAt and ReadAt: bytes at an offset, up to the end of the file") {
  const Descriptor file(open(TestPath("file_bytes").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  REQUIRE(file.ok());
  REQUIRE(WriteAllAt(file.get(), 3, "capstan"));
  std::string room(5, '?');
  CHECK(ReadAt(file.get(), 5, absl::MakeSpan(room)) == 5);
  CHECK(room == "pstan");
  CHECK(ReadAt(file.get(), 8, absl::MakeSpan(room)) == 2);
  CHECK(room == "antan");
  CHECK(ReadAt(file.get(), 100, absl::MakeSpan(room)) == 0);
}

TEST_CASE("WriteAll, WriteAllAt, ReadAt: a failure has its errno") {
  const Descriptor file(open("/dev/null", O_PATH | O_CLOEXEC));  // May be neither read nor written.
  REQUIRE(file.ok());
  std::string room(1, '?');
  errno = 0;
  CHECK_FALSE(WriteAll(file.get(), "x"));
  CHECK(errno == EBADF);
  errno = 0;
  CHECK_FALSE(WriteAllAt(file.get(), 0, "x"));
  CHECK(errno == EBADF);
  errno = 0;
  CHECK(ReadAt(file.get(), 0, absl::MakeSpan(room)) == -1);
  CHECK(errno == EBADF);
}

}  // namespace
}  // namespace capstan::file_bytes_test
