#include "server/storage/rocks_row_disks.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::server {
namespace {

using testing::TestPath;

constexpr int64_t kBodyBytes = 24;

std::string Body(RowNumber row, char version) {
  std::string body = std::string(1, version) + std::to_string(row);
  body.resize(kBodyBytes, '.');
  return body;
}

absl::Status Write(RowDisk& disk, const std::vector<RowNumber>& rows, char version) {
  std::vector<std::string> bodies;
  for (const RowNumber row : rows) bodies.push_back(Body(row, version));
  std::vector<const char*> data;
  for (const std::string& body : bodies) data.push_back(body.data());
  return disk.Write(rows, data);
}

absl::StatusOr<std::vector<std::string>> Read(RowDisk& disk, const std::vector<RowNumber>& rows) {
  std::vector<std::string> bodies(rows.size(), std::string(kBodyBytes, '?'));
  std::vector<char*> data;
  for (std::string& body : bodies) data.push_back(body.data());
  const absl::Status status = disk.Read(rows, data);
  if (!status.ok()) return status;
  return bodies;
}

std::vector<RowNumber> Numbers(RowNumber first, RowNumber count, RowNumber step) {
  std::vector<RowNumber> rows;
  for (RowNumber i = 0; i < count; ++i) rows.push_back(first + i * step);
  return rows;
}

TEST_CASE("RocksRowDisks: bodies come back as they were written last", "[server][storage]") {
  REQUIRE_OK_AND_ASSIGN(auto disks, RocksRowDisks::Create(TestPath("bodies")));
  const std::unique_ptr<RowDisk> one = disks->Open(kBodyBytes);
  const std::unique_ptr<RowDisk> two = disks->Open(kBodyBytes);
  const std::vector<RowNumber> rows = Numbers(0, 2000, 2'147'483);
  REQUIRE_OK(Write(*one, rows, 'a'));
  REQUIRE_OK(Write(*two, rows, 'b'));
  REQUIRE_OK(Write(*one, {rows[7]}, 'c'));
  REQUIRE_OK_AND_ASSIGN(const auto bodies, Read(*one, rows));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (bodies[i] != Body(rows[i], i == 7 ? 'c' : 'a')) FAIL("row " << rows[i]);
  }
  REQUIRE_OK_AND_ASSIGN(const auto other, Read(*two, {rows[7], rows[8]}));
  CHECK(other == std::vector<std::string>{Body(rows[7], 'b'), Body(rows[8], 'b')});
}

TEST_CASE("RocksRowDisks: a disk that is gone leaves the others alone", "[server][storage]") {
  REQUIRE_OK_AND_ASSIGN(auto disks, RocksRowDisks::Create(TestPath("gone")));
  std::unique_ptr<RowDisk> one = disks->Open(kBodyBytes);
  const std::unique_ptr<RowDisk> two = disks->Open(kBodyBytes);
  REQUIRE_OK(Write(*one, {1, 2}, 'a'));
  REQUIRE_OK(Write(*two, {1, 2}, 'b'));
  one = disks->Open(kBodyBytes);
  REQUIRE_OK_AND_ASSIGN(const auto bodies, Read(*two, {1, 2}));
  CHECK(bodies == std::vector<std::string>{Body(1, 'b'), Body(2, 'b')});
  const absl::Status missing = Read(*one, {1}).status();
  CHECK(missing.code() == absl::StatusCode::kDataLoss);
  CHECK(absl::StrContains(missing.message(), "row 1"));
}

TEST_CASE("RocksRowDisks: nothing outlives the process, nor a process that was killed",
          "[server][storage]") {
  const std::string path = TestPath("ended");
  const std::string killed = TestPath("killed");
  std::filesystem::create_directories(path);
  {
    REQUIRE_OK_AND_ASSIGN(auto disks, RocksRowDisks::Create(path));
    const std::unique_ptr<RowDisk> disk = disks->Open(kBodyBytes);
    REQUIRE_OK(Write(*disk, {1}, 'a'));
    std::filesystem::copy(path, killed);  // As SIGKILL leaves it.
  }
  CHECK((!std::filesystem::exists(path) || std::filesystem::is_empty(path)));
  REQUIRE_OK_AND_ASSIGN(auto disks, RocksRowDisks::Create(killed));
  const std::unique_ptr<RowDisk> disk = disks->Open(kBodyBytes);
  CHECK(Read(*disk, {1}).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("RocksRowDisks: a folder that cannot be is named", "[server][storage]") {
  const std::string file = TestPath("file");
  std::ofstream(file) << "x";
  const absl::Status status = RocksRowDisks::Create(file + "/rows").status();
  CHECK(!status.ok());
  CHECK(absl::StrContains(status.message(), file + "/rows"));
}

}  // namespace
}  // namespace capstan::server
