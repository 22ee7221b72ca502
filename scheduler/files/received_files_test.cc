#include "scheduler/files/received_files.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "common/storage/posix_disk.h"
#include "common/testing/status_matchers.h"
#include "common/types/staging.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::received_files_test {
namespace {

constexpr char kFile[] = "model.safetensors.tmp";
constexpr char kName[] = "model.safetensors";

struct Fixture {
  absl::Status Write(int64_t offset, const std::string& data, const std::string& file = kFile) {
    return files.Write(folder.path(), file, offset, data, Crc32cOf(data), now);
  }
  absl::Status Finish(const std::string& whole) {
    return files.Finish(folder.path(), kFile, kName, static_cast<int64_t>(whole.size()),
                        Crc32cOf(whole));
  }
  std::string Named() { return disk.Read(folder.path() + "/" + kName, 1 << 20).value_or("none"); }

  testing::TemporaryFolder folder;
  PosixDisk disk;
  Instant now;
  ReceivedFiles files{&disk, {.open_max = 2, .idle_limit = absl::Seconds(60)}};
};

TEST_CASE("Received files: pieces become a file of that name, whatever is said twice",
          "[scheduler]") {
  Fixture f;
  REQUIRE_OK(f.Write(0, "abc"));
  REQUIRE_OK(f.Write(0, "abc"));  // The answer was lost.
  REQUIRE_OK(f.Write(3, "defg"));
  REQUIRE_OK(f.Write(3, "defg"));
  CHECK(f.Named() == "none");
  REQUIRE_OK(f.Finish("abcdefg"));
  CHECK(f.Named() == "abcdefg");
  REQUIRE_OK(f.Finish("abcdefg"));
  CHECK_FALSE(std::filesystem::exists(f.folder.path() + "/" + kFile));
  CHECK_STATUS(f.Finish("abcdefx"), absl::StatusCode::kFailedPrecondition, "another one");

  REQUIRE_OK(f.Write(0, ""));  // A file may be empty.
  REQUIRE_OK(f.Finish(""));
  CHECK(f.Named().empty());
}

TEST_CASE("Received files: what does not follow is begun anew", "[scheduler]") {
  Fixture f;
  CHECK_STATUS(f.Write(3, "defg"), absl::StatusCode::kFailedPrecondition, "begin it anew");
  REQUIRE_OK(f.Write(0, "abc"));
  CHECK_STATUS(f.Write(4, "x"), absl::StatusCode::kFailedPrecondition, "offset 4, expected 3");
  REQUIRE_OK(f.Write(3, "defg"));
  REQUIRE_OK(f.Write(0, "ABC"));
  CHECK_STATUS(f.Finish("abcdefg"), absl::StatusCode::kDataLoss, "its sender says 7");
  // The same holds after a restart of the scheduler, which then knows no open file.
  REQUIRE_OK(f.Write(0, "abc"));
  ReceivedFiles next{&f.disk, {}};
  CHECK_STATUS(next.Write(f.folder.path(), kFile, 3, "d", Crc32cOf("d"), f.now),
               absl::StatusCode::kFailedPrecondition, "nothing of it is here");
  CHECK_STATUS(next.Finish(f.folder.path(), kFile, kName, 3, Crc32cOf("abc")),
               absl::StatusCode::kFailedPrecondition, "begin it anew");
}

TEST_CASE("Received files: a piece that was damaged on its way is asked for again", "[scheduler]") {
  Fixture f;
  CHECK_STATUS(f.files.Write(f.folder.path(), kFile, 0, "abd", Crc32cOf("abc"), f.now),
               absl::StatusCode::kUnavailable, "damaged on its way");
  REQUIRE_OK(f.Write(0, "abc"));
  REQUIRE_OK(f.Finish("abc"));
}

TEST_CASE("Received files: names and sizes out of range are refused", "[scheduler]") {
  Fixture f;
  for (const char* name : {"", ".", "..", "a/b", "/etc/passwd", "../x"}) {
    CHECK_STATUS(f.Write(0, "a", name), absl::StatusCode::kInvalidArgument, "expected a file name");
  }
  CHECK_STATUS(f.files.Finish(f.folder.path(), kFile, "../x", 0, 0),
               absl::StatusCode::kInvalidArgument, "expected a file name");
  CHECK_STATUS(f.Write(-1, "a"), absl::StatusCode::kInvalidArgument, "offset -1");
  CHECK_STATUS(f.Write(1, ""), absl::StatusCode::kInvalidArgument, "0 bytes");
  const std::string large(ReceivedFiles::kPieceBytesMax + 1, 'x');
  CHECK_STATUS(f.Write(0, large), absl::StatusCode::kInvalidArgument, "1048577 bytes");
  CHECK_STATUS(f.files.Read(f.folder.path(), kName, 0, 0), absl::StatusCode::kInvalidArgument,
               "0 bytes");
}

TEST_CASE("Received files: one that was left makes room for another after a while", "[scheduler]") {
  Fixture f;
  REQUIRE_OK(f.Write(0, "a", "left"));
  f.now = f.now + absl::Seconds(30);
  REQUIRE_OK(f.Write(0, "b", "works"));
  CHECK_STATUS(f.Write(0, "c", "third"), absl::StatusCode::kUnavailable, "2 files");
  f.now = f.now + absl::Seconds(30);
  REQUIRE_OK(f.Write(0, "c", "third"));
  CHECK_STATUS(f.Write(1, "a", "left"), absl::StatusCode::kFailedPrecondition, "begin it anew");
  CHECK_FALSE(std::filesystem::exists(f.folder.path() + "/left"));
  REQUIRE_OK(f.Write(1, "b", "works"));
}

TEST_CASE("Received files: one that was left is closed when the next one begins", "[scheduler]") {
  Fixture f;
  ReceivedFiles files(&f.disk, {.open_max = 256, .idle_limit = absl::Seconds(60)});
  const auto write = [&](const std::string& file, Instant now) {
    return files.Write(f.folder.path(), file, 0, "a", Crc32cOf("a"), now);
  };
  REQUIRE_OK(write("left", f.now));
  REQUIRE_OK(write("works", f.now + absl::Seconds(59)));
  CHECK(std::filesystem::exists(f.folder.path() + "/left"));
  REQUIRE_OK(write("next", f.now + absl::Seconds(60)));
  CHECK_FALSE(std::filesystem::exists(f.folder.path() + "/left"));
  CHECK(std::filesystem::exists(f.folder.path() + "/works"));
}

TEST_CASE("Received files: an error of the disk is told, and is no reason to ask again",
          "[scheduler]") {
  Fixture f;
  std::filesystem::create_directory(f.folder.path() + "/" + kFile);
  CHECK_STATUS(f.Write(0, "abc"), absl::StatusCode::kAborted, kFile);
  const std::string missing = f.folder.path() + "/missing";
  CHECK_STATUS(f.files.Write(missing, kFile, 0, "abc", Crc32cOf("abc"), f.now),
               absl::StatusCode::kNotFound, missing);
}

TEST_CASE("Received files: a file is read in pieces", "[scheduler]") {
  Fixture f;
  REQUIRE_OK(f.Write(0, "abcdefg"));
  REQUIRE_OK(f.Finish("abcdefg"));
  const auto read = [&f](int64_t offset, int64_t bytes_max) {
    return f.files.Read(f.folder.path(), kName, offset, bytes_max);
  };
  REQUIRE_OK_AND_ASSIGN(const ReceivedFiles::Piece first, read(0, 4));
  CHECK(first.data == "abcd");
  CHECK(first.file_bytes == 7);
  CHECK(read(4, 4)->data == "efg");
  CHECK(read(7, 4)->data.empty());
  CHECK_STATUS(f.files.Read(f.folder.path(), "none", 0, 4), absl::StatusCode::kNotFound, "none");
}

TEST_CASE("Received files: a file that the disk does not read is lost data", "[scheduler]") {
  Fixture f;
  REQUIRE_OK(f.disk.MakeFolder(f.folder.path() + "/a.part"));
  CHECK_STATUS(f.files.Read(f.folder.path(), "a.part", 0, 4), absl::StatusCode::kDataLoss,
               "expected a regular file");
}

TEST_CASE("Received files: a folder's mark stays while it is there", "[scheduler]") {
  Fixture f;
  const std::string folder = f.folder.path() + "/out/.export-0-3";
  REQUIRE_OK_AND_ASSIGN(const std::string mark, f.files.MarkFolder(folder));
  CHECK(mark.size() == 16);
  CHECK(f.files.MarkFolder(folder).value() == mark);
  CHECK(f.disk.Read(folder + "/" + kFolderMark, 64).value() == mark);
  CHECK(f.files.MarkFolder(f.folder.path()).value() != mark);
}

}  // namespace
}  // namespace capstan::scheduler::received_files_test
