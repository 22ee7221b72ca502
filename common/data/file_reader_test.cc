#include "common/data/file_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <iostream>

#include "common/data/testing/test_files.h"
#include "common/testing/status_matchers.h"

namespace capstan::file_reader_test {
namespace {

using ::capstan::testing::Bytes;
using ::capstan::testing::Concatenate;
using ::capstan::testing::Gzip;
using ::capstan::testing::NoisyBytes;
using ::capstan::testing::TemporaryFolder;

constexpr int64_t kRoom = 16 << 20;

Bytes FrontOf(Bytes bytes, size_t count) {
  bytes.resize(count);
  return bytes;
}

TEST_CASE("Data file: plain and gzip files give their contents", "[common][data]") {
  const TemporaryFolder folder;
  for (const size_t count : {0, 1, 4096, 700'001}) {
    const Bytes contents = NoisyBytes(count);
    REQUIRE_OK_AND_ASSIGN(const Bytes plain, ReadDataFile(folder.Write("plain", contents), kRoom));
    CHECK(plain == contents);
    REQUIRE_OK_AND_ASSIGN(const Bytes unzipped,
                          ReadDataFile(folder.Write("data.gz", Gzip(contents)), kRoom));
    CHECK(unzipped == contents);
  }
}

TEST_CASE("Data file: members of a gzip file follow one another", "[common][data]") {
  const TemporaryFolder folder;
  const Bytes first = NoisyBytes(300'000, 1);
  const Bytes second = NoisyBytes(5, 2);
  const std::string path =
      folder.Write("two.gz", Concatenate({Gzip(first), Gzip({}), Gzip(second)}));
  REQUIRE_OK_AND_ASSIGN(const Bytes bytes, ReadDataFile(path, kRoom));
  CHECK(bytes == Concatenate({first, second}));
}

TEST_CASE("Data file: a missing file is not found, by its name", "[common][data]") {
  const TemporaryFolder folder;
  CHECK_STATUS(ReadDataFile(folder.Path("none"), kRoom), absl::StatusCode::kNotFound,
               folder.Path("none"));
  const std::string file = folder.Write("file", {1});
  CHECK_STATUS(ReadDataFile(file + "/below", kRoom), absl::StatusCode::kNotFound, "file/below");
}

TEST_CASE("Data file: a folder and a pipe are refused without waiting", "[common][data]") {
  const TemporaryFolder folder;
  CHECK_STATUS(ReadDataFile(folder.Path("."), kRoom), absl::StatusCode::kPermissionDenied,
               "expected a regular file");
  REQUIRE(mkfifo(folder.Path("pipe").c_str(), 0600) == 0);
  CHECK_STATUS(ReadDataFile(folder.Path("pipe"), kRoom), absl::StatusCode::kPermissionDenied,
               "a pipe, expected a regular file");
  CHECK_STATUS(ReadDataFile("/dev/zero", kRoom), absl::StatusCode::kPermissionDenied,
               "/dev/zero: cannot be read: a device, expected a regular file");
}

TEST_CASE("Data file: a file without the right to read it is refused", "[common][data]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("secret", {1});
  REQUIRE(chmod(path.c_str(), 0) == 0);
  if (access(path.c_str(), R_OK) == 0) {
    std::cout << "skipped: this user (root?) may read every file\n";
    return;
  }
  CHECK_STATUS(ReadDataFile(path, kRoom), absl::StatusCode::kPermissionDenied, path);
}

TEST_CASE("Data file: a gzip file cut anywhere is truncated", "[common][data]") {
  const TemporaryFolder folder;
  const Bytes whole = Gzip(NoisyBytes(2000));
  for (size_t count = 0; count < whole.size(); count += 37) {
    CHECK_STATUS(ReadDataFile(folder.Write("cut.gz", FrontOf(whole, count)), kRoom),
                 absl::StatusCode::kDataLoss, "truncated");
  }
  const Bytes two = Concatenate({whole, FrontOf(whole, 11)});
  CHECK_STATUS(ReadDataFile(folder.Write("two.gz", two), kRoom), absl::StatusCode::kDataLoss,
               "truncated");
}

TEST_CASE("Data file: a damaged gzip file is corrupt", "[common][data]") {
  const TemporaryFolder folder;
  Bytes wrong_crc = Gzip(NoisyBytes(2000));
  wrong_crc[wrong_crc.size() - 5] ^= 1;
  CHECK_STATUS(ReadDataFile(folder.Write("crc.gz", wrong_crc), kRoom), absl::StatusCode::kDataLoss,
               "corrupt");
  CHECK_STATUS(ReadDataFile(folder.Write("plain.gz", NoisyBytes(50)), kRoom),
               absl::StatusCode::kDataLoss, "expected a gzip file");
}

TEST_CASE("Data file: bytes after the gzip data are refused", "[common][data]") {
  const TemporaryFolder folder;
  const Bytes whole = Gzip(NoisyBytes(2000));
  CHECK_STATUS(ReadDataFile(folder.Write("a.gz", Concatenate({whole, {'x'}})), kRoom),
               absl::StatusCode::kDataLoss, "expected the end of the file");
}

TEST_CASE("Data file: the size bound counts decompressed bytes", "[common][data]") {
  const TemporaryFolder folder;
  const Bytes zeros(1'000'000, 0);
  const std::string bomb = folder.Write("bomb.gz", Gzip(zeros));
  REQUIRE_OK_AND_ASSIGN(const Bytes fits, ReadDataFile(bomb, 1'000'000));
  CHECK(fits == zeros);
  CHECK_STATUS(ReadDataFile(bomb, 999'999), absl::StatusCode::kDataLoss, "more than the 999999");
  const std::string plain = folder.Write("plain", zeros);
  REQUIRE_OK(ReadDataFile(plain, 1'000'000));
  CHECK_STATUS(ReadDataFile(plain, 999'999), absl::StatusCode::kDataLoss, "more than the 999999");
  CHECK_STATUS(ReadDataFile(bomb, 0), absl::StatusCode::kDataLoss, "more than the 0 bytes");
}

TEST_CASE("Data file: a small file does not become a large one", "[common][data]") {
  // 64 MiB in members of 1 MiB, each about 1 KiB: so much is taken of any file, and no byte more.
  const TemporaryFolder folder;
  const Bytes member = Gzip(Bytes(1 << 20, 0));
  Bytes bomb;
  for (int i = 0; i < 64; ++i) bomb.insert(bomb.end(), member.begin(), member.end());
  constexpr int64_t kSplit = int64_t{8} << 30;
  REQUIRE_OK_AND_ASSIGN(const Bytes fits, ReadDataFile(folder.Write("fits.gz", bomb), kSplit));
  CHECK(fits.size() == 64 << 20);
  const Bytes one = Gzip({0});
  bomb.insert(bomb.end(), one.begin(), one.end());
  const std::string path = folder.Write("bomb.gz", bomb);
  CHECK_STATUS(
      ReadDataFile(path, kSplit), absl::StatusCode::kDataLoss,
      path + ": its " + std::to_string(bomb.size()) +
          " bytes are more than 67108864 decompressed, expected at most 250 times as many");
  // Bytes that do not compress make room for as many that do.
  const Bytes noise = Gzip(NoisyBytes(1 << 20));
  bomb.insert(bomb.end(), noise.begin(), noise.end());
  REQUIRE_OK_AND_ASSIGN(const Bytes grown, ReadDataFile(folder.Write("more.gz", bomb), kSplit));
  CHECK(grown.size() == (65 << 20) + 1);
}

}  // namespace
}  // namespace capstan::file_reader_test
