#include "server/store/sparse/disk/spill_file.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::server::spill_file_test {
namespace {

using testing::TestPath;

constexpr size_t kSegmentBytes = 10'000;

std::unique_ptr<SpillFile> Make(const std::string& name) {
  std::filesystem::create_directories(TestPath(name));
  REQUIRE_OK_AND_ASSIGN(auto file, SpillFile::Create(TestPath(name), kSegmentBytes));
  return file;
}

// Returns the bytes of each piece, in the order of the pieces.
absl::StatusOr<std::vector<std::string>> Read(const SpillFile& file,
                                              const std::vector<SpillFile::Piece>& pieces) {
  std::vector<std::string> found(pieces.size());
  const absl::Status status = file.Read(pieces, [&](size_t piece, absl::string_view bytes) {
    found[piece] = std::string(bytes);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return found;
}

TEST_CASE("SpillFile: pieces come back as they were written last", "[server][storage]") {
  const auto file = Make("pieces");
  const uint32_t one = file->TakeSegment().number, two = file->TakeSegment().number;
  CHECK(one != two);
  REQUIRE_OK(file->Write(one, 0, std::string(kSegmentBytes, 'a')));
  REQUIRE_OK(file->Write(two, 0, std::string(kSegmentBytes, 'b')));
  REQUIRE_OK(file->Write(one, 100, "xyz"));
  REQUIRE_OK_AND_ASSIGN(const auto found,
                        Read(*file, {{two, 9'998, 2}, {one, 99, 5}, {one, 0, 1}}));
  CHECK(found == std::vector<std::string>{"bb", "axyza", "a"});
}

TEST_CASE("SpillFile: a segment that was given back is taken again, as another use",
          "[server][storage]") {
  const auto file = Make("again");
  const SpillFile::Segment one = file->TakeSegment();
  REQUIRE_OK(file->Write(one.number, 0, std::string(kSegmentBytes, 'a')));
  const bool discarded = GENERATE(false, true);
  if (discarded) {
    file->Discard({one.number});
  } else {
    file->Return(one.number);
  }
  const SpillFile::Segment again = file->TakeSegment();
  CHECK(again.number == one.number);
  CHECK(again.use != one.use);
  CHECK(file->TakeSegment().number != one.number);
  REQUIRE_OK(file->Write(again.number, 5, "new"));
  REQUIRE_OK_AND_ASSIGN(const auto found, Read(*file, {{again.number, 5, 3}}));
  CHECK(found[0] == "new");
}

TEST_CASE("SpillFile: what was never written is not there", "[server][storage]") {
  const auto file = Make("never");
  const uint32_t segment = file->TakeSegment().number;
  REQUIRE_OK(file->Write(segment, 0, "abc"));
  CHECK_STATUS(Read(*file, {{segment, 2, 2}}), absl::StatusCode::kDataLoss, "rows in ");
}

TEST_CASE("SpillFile: an error of the reader ends the reading", "[server][storage]") {
  const auto file = Make("reader");
  const uint32_t segment = file->TakeSegment().number;
  REQUIRE_OK(file->Write(segment, 0, "abc"));
  int calls = 0;
  const absl::Status status =
      file->Read({{segment, 0, 1}, {segment, 1, 1}}, [&](size_t, absl::string_view) {
        ++calls;
        return absl::DataLossError("no");
      });
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(calls == 1);
}

TEST_CASE("SpillFile: a missing folder is named", "[server][storage]") {
  CHECK_STATUS(SpillFile::Create(TestPath("nowhere"), kSegmentBytes), absl::StatusCode::kNotFound,
               TestPath("nowhere"));
}

}  // namespace
}  // namespace capstan::server::spill_file_test
