#include "common/examples/files/file_ranges.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <iostream>
#include <limits>

#include "common/data/testing/test_files.h"
#include "common/testing/status_matchers.h"

namespace capstan::file_ranges_test {
namespace {

using ::capstan::testing::Bytes;
using ::capstan::testing::Gzip;
using ::capstan::testing::TemporaryFolder;

std::vector<FileRange> RangesOf(const std::string& path, int64_t bytes, int64_t range_bytes) {
  std::vector<FileRange> ranges;
  REQUIRE_OK(AppendRanges(path, bytes, range_bytes, &ranges));
  return ranges;
}

TEST_CASE("File ranges: they cover a file without gaps, in about equal parts",
          "[common][examples]") {
  for (const int64_t bytes : {1, 2, 3, 99, 100, 149, 150, 151, 250, 251, 1000, 1'000'003}) {
    for (const int64_t range_bytes : {1, 2, 7, 100, 5000}) {
      const std::vector<FileRange> ranges = RangesOf("f", bytes, range_bytes);
      REQUIRE_FALSE(ranges.empty());
      CHECK(ranges.front().begin == 0);
      CHECK(ranges.back().end == bytes);
      for (size_t i = 0; i < ranges.size(); ++i) {
        if (i > 0) REQUIRE(ranges[i].begin == ranges[i - 1].end);
        const int64_t size = ranges[i].end - ranges[i].begin;
        REQUIRE(size >= bytes / static_cast<int64_t>(ranges.size()));
        REQUIRE(size <= (3 * range_bytes + 1) / 2);
        if (ranges.size() > 1) REQUIRE(size >= 3 * range_bytes / 4);
      }
    }
  }
}

TEST_CASE("File ranges: no range for an empty file, one for a compressed one",
          "[common][examples]") {
  CHECK(RangesOf("f", 0, 10).empty());
  CHECK(RangesOf("f.gz", 1000, 10) == std::vector<FileRange>{{"f.gz", 0, 1000}});
  CHECK(RangesOf("f.zst", 1000, 10) == std::vector<FileRange>{{"f.zst", 0, 1000}});
}

TEST_CASE("File ranges: huge files do not overflow, and too many ranges are refused",
          "[common][examples]") {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const std::vector<FileRange> ranges = RangesOf("f", huge, huge / 1'000'000);
  CHECK(ranges.size() == 1'000'000);
  CHECK(ranges.back().end == huge);
  CHECK(RangesOf("f", huge, huge).size() == 1);
  std::vector<FileRange> many;
  CHECK_STATUS(AppendRanges("f", huge, 1, &many), absl::StatusCode::kInvalidArgument,
               "make range_bytes larger");
  CHECK(many.empty());
}

TEST_CASE("File ranges: paths and globs give each file once, in the order of bytes",
          "[common][examples]") {
  const TemporaryFolder folder;
  for (const char* name : {"part-2", "part-10", "Part-3", "other"}) folder.Write(name, {'x'});
  REQUIRE_OK_AND_ASSIGN(const auto files,
                        ListFiles({folder.Path("part-*"), folder.Path("[Pp]art-?"),
                                   folder.Path("other"), folder.Path("part-2")}));
  CHECK(files == std::vector<std::string>{folder.Path("Part-3"), folder.Path("other"),
                                          folder.Path("part-10"), folder.Path("part-2")});
}

TEST_CASE("File ranges: a file with a star in its name is meant by it", "[common][examples]") {
  const TemporaryFolder folder;
  folder.Write("a", {'x'});
  folder.Write("*", {'x'});
  REQUIRE_OK_AND_ASSIGN(const auto files, ListFiles({folder.Path("*")}));
  CHECK(files == std::vector<std::string>{folder.Path("*")});
}

TEST_CASE("File ranges: what cannot be read is refused by name", "[common][examples]") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.Path("sub"));
  folder.Write("file", {'x'});
  CHECK_STATUS(ListFiles({}), absl::StatusCode::kInvalidArgument, "files: none given");
  CHECK_STATUS(ListFiles({""}), absl::StatusCode::kInvalidArgument, "an empty path");
  CHECK_STATUS(ListFiles({folder.Path("*.csv")}), absl::StatusCode::kNotFound,
               "*.csv: no file matches");
  CHECK_STATUS(ListFiles({folder.Path("none/*.csv")}), absl::StatusCode::kNotFound,
               "none/*.csv: no file matches");
  CHECK_STATUS(ListFiles({folder.Path("file/*.csv")}), absl::StatusCode::kNotFound,
               "file/*.csv: no file matches");
  CHECK_STATUS(ListFiles({folder.Path("none")}), absl::StatusCode::kNotFound, "none");
  CHECK_STATUS(ListFiles({folder.Path("s*")}), absl::StatusCode::kPermissionDenied,
               "sub: cannot be read: a folder");
  const std::string secret = folder.Write("secret", {'x'});
  REQUIRE(chmod(secret.c_str(), 0) == 0);
  REQUIRE(chmod(folder.Path("sub").c_str(), 0) == 0);
  if (access(secret.c_str(), R_OK) == 0) {
    std::cout << "skipped: this user (root?) may read every file\n";
  } else {
    CHECK_STATUS(ListFiles({secret}), absl::StatusCode::kPermissionDenied, "secret");
    CHECK_STATUS(ListFiles({folder.Path("sub/*")}), absl::StatusCode::kPermissionDenied,
                 "a folder of it cannot be read");
  }
  REQUIRE(chmod(folder.Path("sub").c_str(), 0700) == 0);
}

TEST_CASE("File ranges: all ranges of all files", "[common][examples]") {
  const TemporaryFolder folder;
  const std::string a = folder.Write("a", Bytes(10, 'x'));
  const std::string b = folder.Write("b", {});
  const Bytes compressed = Gzip(Bytes(1000, 'x'));
  const std::string c = folder.Write("c.gz", compressed);
  const auto size = static_cast<int64_t>(compressed.size());
  REQUIRE_OK_AND_ASSIGN(const auto ranges, ListRanges({folder.Path("*")}, 5));
  CHECK(ranges == std::vector<FileRange>{{a, 0, 5}, {a, 5, 10}, {c, 0, size}});
  CHECK_STATUS(ListRanges({a}, 0), absl::StatusCode::kInvalidArgument,
               "range_bytes is 0, expected at least 1");
  CHECK_STATUS(ListRanges({b}, 5), absl::StatusCode::kInvalidArgument, "b is empty, expected");
  const std::string d = folder.Write("d", {});
  CHECK_STATUS(ListRanges({d, b}, 5), absl::StatusCode::kInvalidArgument,
               "b and the other files are empty");
  folder.Write("e.gz", {});
  CHECK_STATUS(ListRanges({folder.Path("e.gz")}, 5), absl::StatusCode::kDataLoss,
               "e.gz: truncated: 0 bytes");
}

}  // namespace
}  // namespace capstan::file_ranges_test
