#include "server/store/sparse/disk/file_row_disks.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::server::file_row_disks_test {
namespace {

using testing::TestPath;

constexpr int64_t kPayloadBytes = 24;

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Payload(RowNumber row, char version) {
  std::string payload = std::string(1, version) + std::to_string(row);
  payload.resize(kPayloadBytes, '.');
  return payload;
}

absl::Status Write(RowDisk& disk, const std::vector<RowNumber>& rows, char version) {
  std::vector<std::string> payloads;
  for (const RowNumber row : rows) payloads.push_back(Payload(row, version));
  std::vector<const char*> data;
  for (const std::string& payload : payloads) data.push_back(payload.data());
  return disk.Write(rows, data);
}

absl::StatusOr<std::vector<std::string>> Read(RowDisk& disk, const std::vector<RowNumber>& rows) {
  std::vector<std::string> payloads(rows.size(), std::string(kPayloadBytes, '?'));
  std::vector<char*> data;
  for (std::string& payload : payloads) data.push_back(payload.data());
  const absl::Status status = disk.Read(rows, data);
  if (!status.ok()) return status;
  return payloads;
}

std::vector<RowNumber> Numbers(RowNumber first, RowNumber count, RowNumber step) {
  std::vector<RowNumber> rows;
  for (RowNumber i = 0; i < count; ++i) rows.push_back(first + i * step);
  return rows;
}

TEST_CASE("FileRowDisks: payloads come back as they were written last", "[server][storage]") {
  REQUIRE_OK_AND_ASSIGN(auto disks, FileRowDisks::Create(TestPath("payloads")));
  REQUIRE_OK_AND_ASSIGN(const auto one, disks->Open(kPayloadBytes));
  REQUIRE_OK_AND_ASSIGN(const auto two, disks->Open(kPayloadBytes));
  const std::vector<RowNumber> rows = Numbers(5, 2000, 7);
  REQUIRE_OK(Write(*one, rows, 'a'));
  REQUIRE_OK(Write(*two, rows, 'b'));
  REQUIRE_OK(Write(*one, {rows[7]}, 'c'));
  REQUIRE_OK_AND_ASSIGN(const auto payloads, Read(*one, rows));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (payloads[i] != Payload(rows[i], i == 7 ? 'c' : 'a')) FAIL("row " << rows[i]);
  }
  REQUIRE_OK_AND_ASSIGN(const auto other, Read(*two, {rows[7], rows[8]}));
  CHECK(other == std::vector<std::string>{Payload(rows[7], 'b'), Payload(rows[8], 'b')});
}

TEST_CASE("FileRowDisks: a disk that is gone leaves the others alone", "[server][storage]") {
  REQUIRE_OK_AND_ASSIGN(auto disks, FileRowDisks::Create(TestPath("gone")));
  REQUIRE_OK_AND_ASSIGN(std::unique_ptr<RowDisk> one, disks->Open(kPayloadBytes));
  REQUIRE_OK_AND_ASSIGN(const auto two, disks->Open(kPayloadBytes));
  REQUIRE_OK(Write(*one, {1, 2}, 'a'));
  REQUIRE_OK(Write(*two, {1, 2}, 'b'));
  REQUIRE_OK_AND_ASSIGN(one, disks->Open(kPayloadBytes));
  REQUIRE_OK_AND_ASSIGN(const auto payloads, Read(*two, {1, 2}));
  CHECK(payloads == std::vector<std::string>{Payload(1, 'b'), Payload(2, 'b')});
  const absl::Status missing = Read(*one, {1}).status();
  CHECK(missing.code() == absl::StatusCode::kDataLoss);
  CHECK(absl::StrContains(missing.message(), "row 1"));
}

TEST_CASE("FileRowDisks: nothing is left in the folder, whatever way the process ends",
          "[server][storage]") {
  const std::string path = TestPath("rows");
  REQUIRE_OK(FileRowDisks::Create(path));
  const std::vector<std::string> own = FilesIn(path);
  std::filesystem::create_directories(path + "/000007");
  std::ofstream(path + "/000007/old") << "of an earlier process";
  REQUIRE_OK_AND_ASSIGN(auto disks, FileRowDisks::Create(path));
  CHECK(FilesIn(path) == own);
  REQUIRE_OK_AND_ASSIGN(const auto disk, disks->Open(kPayloadBytes));
  REQUIRE_OK(Write(*disk, {1}, 'a'));
  CHECK(FilesIn(path) == own);  // SIGKILL would leave the same.
}

TEST_CASE(
    "FileRowDisks: a folder that somebody else has filled is refused and left as it is "
    "(issue 20)",
    "[server][storage]") {
  const std::string path = TestPath("somebodys");
  std::filesystem::create_directories(path + "/2024");
  std::ofstream(path + "/2024/table.csv") << "somebody's rows";
  const absl::Status refused = FileRowDisks::Create(path).status();
  CHECK(FilesIn(path) == std::vector<std::string>{"2024"});
  CHECK(FilesIn(path + "/2024") == std::vector<std::string>{"table.csv"});
  CHECK_STATUS(refused, absl::StatusCode::kFailedPrecondition,
               path + " holds \"2024\" and no .capstan-folder");
  // An empty one is nobody's.
  std::filesystem::remove_all(path + "/2024");
  REQUIRE_OK(FileRowDisks::Create(path));
}

TEST_CASE("FileRowDisks: a folder whose first start was killed halfway is used",
          "[server][storage]") {
  const std::string path = TestPath("halfway");
  std::filesystem::create_directories(path);
  std::ofstream(path + "/.capstan-folder.tmp") << "Scratch";
  REQUIRE_OK(FileRowDisks::Create(path));
  CHECK(FilesIn(path) == std::vector<std::string>{".capstan-folder"});
}

TEST_CASE("FileRowDisks: payloads of every size have a place", "[server][storage]") {
  REQUIRE_OK_AND_ASSIGN(auto disks, FileRowDisks::Create(TestPath("sizes")));
  for (const int64_t bytes : {4, 8, 24, 4096, 100'000, 1 << 20}) {
    REQUIRE_OK_AND_ASSIGN(const auto disk, disks->Open(bytes));
    std::vector<std::string> payloads;
    std::vector<RowNumber> rows;
    for (RowNumber row = 0; row < 20; ++row) {
      payloads.emplace_back(static_cast<size_t>(bytes), static_cast<char>('a' + row));
      rows.push_back(row);
    }
    std::vector<const char*> data;
    for (const std::string& payload : payloads) data.push_back(payload.data());
    REQUIRE_OK(disk->Write(rows, data));
    std::vector<std::string> found(20, std::string(static_cast<size_t>(bytes), '?'));
    std::vector<char*> to;
    for (std::string& payload : found) to.push_back(payload.data());
    REQUIRE_OK(disk->Read(rows, to));
    CHECK((found == payloads));
  }
}

TEST_CASE("FileRowDisks: a folder that cannot be is named", "[server][storage]") {
  const std::string file = TestPath("file");
  std::ofstream(file) << "x";
  const absl::Status status = FileRowDisks::Create(file + "/rows").status();
  CHECK(!status.ok());
  CHECK(absl::StrContains(status.message(), file + "/rows"));
}

}  // namespace
}  // namespace capstan::server::file_row_disks_test
