#include "server/store/sparse/disk/row_log.h"

#include <signal.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::server::row_log_test {
namespace {

using testing::TestPath;

constexpr size_t kPayloadBytes = 1000;
constexpr size_t kRecordBytes = kPayloadBytes + 8;
constexpr uint32_t kSegmentRows = 130;  // 128 KiB.

std::string Payload(RowNumber row, int version) {
  std::string payload = absl::StrCat(version, " of ", row, " ");
  payload.resize(kPayloadBytes, static_cast<char>('a' + row % 26));
  return payload;
}

// A log in a file of its own, which tests damage.
struct Log {
  explicit Log(const std::string& name) {
    std::filesystem::create_directories(TestPath(name));
    REQUIRE_OK_AND_ASSIGN(file,
                          SpillFile::Create(TestPath(name), RowLog::SegmentBytes(kPayloadBytes)));
    rows = std::make_unique<RowLog>(file, kPayloadBytes);
  }

  absl::Status Write(const std::vector<RowNumber>& which, int version) {
    std::vector<std::string> payloads;
    for (const RowNumber row : which) payloads.push_back(Payload(row, version));
    std::vector<const char*> data;
    for (const std::string& payload : payloads) data.push_back(payload.data());
    return rows->Write(which, data);
  }
  absl::StatusOr<std::vector<std::string>> Read(const std::vector<RowNumber>& which) {
    std::vector<std::string> payloads(which.size(), std::string(kPayloadBytes, '?'));
    std::vector<char*> data;
    for (std::string& payload : payloads) data.push_back(payload.data());
    const absl::Status status = rows->Read(which, data);
    if (!status.ok()) return status;
    return payloads;
  }
  std::string Bytes(uint32_t segment, size_t at, size_t bytes) {
    std::string found;
    REQUIRE_OK(file->Read({{segment, at, bytes}}, [&](size_t, absl::string_view piece) {
      found = std::string(piece);
      return absl::OkStatus();
    }));
    return found;
  }

  std::shared_ptr<SpillFile> file;
  std::unique_ptr<RowLog> rows;
};

std::vector<RowNumber> Numbers(RowNumber first, RowNumber end) {
  std::vector<RowNumber> rows;
  for (RowNumber row = first; row < end; ++row) rows.push_back(row);
  return rows;
}

TEST_CASE("RowLog: each row has what was written last, whatever was written in between",
          "[server][storage]") {
  constexpr uint32_t kRows = 3000;
  Log log("random");
  std::map<RowNumber, int> expected;  // The version of each row that is there.
  uint64_t draws = 0;
  const auto draw = [&](uint32_t below) { return PhiloxWord(7, draws++) % below; };
  for (int step = 1; step <= 400; ++step) {
    std::map<RowNumber, int> chosen;
    for (uint32_t i = draw(300); i > 0; --i) chosen[draw(kRows)] = step;
    std::vector<RowNumber> rows;
    for (const auto& [row, version] : chosen) rows.insert(rows.begin(), row);  // They descend.
    if (draw(4) == 0) {
      for (const RowNumber row : rows) log.rows->Forget(row);
      for (const RowNumber row : rows) expected.erase(row);
      continue;
    }
    REQUIRE_OK(log.Write(rows, step));
    for (const RowNumber row : rows) expected[row] = step;
    std::vector<RowNumber> wanted;
    for (const auto& [row, version] : expected) {
      if (draw(8) == 0) wanted.insert(wanted.begin(), row);
    }
    REQUIRE_OK_AND_ASSIGN(const auto found, log.Read(wanted));
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (found[i] != Payload(wanted[i], expected[wanted[i]])) FAIL("row " << wanted[i]);
    }
  }
  // Some 60,000 were written; the file has room for what counts and half as much again.
  const uint32_t segments = log.file->TakeSegment().number;
  CHECK(segments < 3 + kRows * 3 / 2 / kSegmentRows);
  CHECK(log.rows->bytes() < 10 * kRows);
}

TEST_CASE("RowLog: what is given back is used again", "[server][storage]") {
  Log log("again");
  REQUIRE_OK(log.Write(Numbers(0, 10 * kSegmentRows), 1));
  SECTION("rows that are forgotten") {
    for (const RowNumber row : Numbers(0, 10 * kSegmentRows)) log.rows->Forget(row);
  }
  SECTION("all of a bucket") { log.rows = std::make_unique<RowLog>(log.file, kPayloadBytes); }
  REQUIRE_OK(log.Write(Numbers(0, 9 * kSegmentRows), 2));
  CHECK(log.file->TakeSegment().number <= 10);
  REQUIRE_OK_AND_ASSIGN(const auto found, log.Read({9 * kSegmentRows - 1}));
  CHECK(found[0] == Payload(9 * kSegmentRows - 1, 2));
}

TEST_CASE("RowLog: a row that is not there is named", "[server][storage]") {
  Log log("missing");
  REQUIRE_OK(log.Write({1, 2}, 1));
  log.rows->Forget(2);
  const RowNumber missing = GENERATE(0, 2, 3, 4'000'000'000);
  log.rows->Forget(missing);
  CHECK_STATUS(log.Read({1, missing}), absl::StatusCode::kDataLoss, absl::StrCat("row ", missing));
}

TEST_CASE("RowLog: a changed bit anywhere in a record is found", "[server][storage]") {
  Log log("bits");
  REQUIRE_OK(log.Write({7, 8, 9}, 1));
  for (size_t at = 0; at < kRecordBytes; at += at < 16 ? 1 : 97) {
    const std::string whole = log.Bytes(0, kRecordBytes + at, 1);
    REQUIRE_OK(
        log.file->Write(0, kRecordBytes + at, std::string(1, static_cast<char>(whole[0] ^ 4))));
    CHECK_STATUS(log.Read({7, 8, 9}), absl::StatusCode::kDataLoss,
                 "row 8 on disk is not what was written: rows in ");
    REQUIRE_OK(log.Read({7, 9}));
    REQUIRE_OK(log.file->Write(0, kRecordBytes + at, whole));
  }
  REQUIRE_OK(log.Read({7, 8, 9}));
}

TEST_CASE("RowLog: a record that the disk has kept from an earlier use is found",
          "[server][storage]") {
  Log log("stale");
  REQUIRE_OK(log.Write(Numbers(0, kSegmentRows), 1));
  const std::string before = log.Bytes(0, 0, RowLog::SegmentBytes(kPayloadBytes));
  for (const RowNumber row : Numbers(0, kSegmentRows)) log.rows->Forget(row);
  REQUIRE_OK(log.Write(Numbers(0, 3 * kSegmentRows), 2));
  for (uint32_t segment = 0; segment < 3; ++segment) {
    REQUIRE_OK(log.file->Write(segment, 0, before));
  }
  CHECK_STATUS(log.Read({5}), absl::StatusCode::kDataLoss, "row 5 on disk is not what was written");
}

TEST_CASE("RowLog: damage is found, not copied, when a segment is cleaned", "[server][storage]") {
  Log log("cleaned");
  constexpr RowNumber kRows = 10 * kSegmentRows;
  REQUIRE_OK(log.Write(Numbers(0, kRows), 1));
  const size_t at = GENERATE(0, 500);  // Its row, its payload.
  for (uint32_t segment = 0; segment < 10; ++segment) {
    for (uint32_t i = 0; i < kSegmentRows; i += 2) {
      REQUIRE_OK(log.file->Write(segment, i * kRecordBytes + at, "?"));
    }
  }
  for (RowNumber row = 1; row < kRows; row += 2) log.rows->Forget(row);
  CHECK_STATUS(log.Write({kRows}, 2), absl::StatusCode::kDataLoss, "on disk");
}

TEST_CASE("RowLog: a fetch brings what a read would, and only that", "[server][storage]") {
  Log log("fetch");
  REQUIRE_OK(log.Write(Numbers(0, 3 * kSegmentRows), 1));
  const std::vector<RowNumber> wanted = {300, 7, 8, 140};
  const auto fetch = log.rows->BeginFetch(wanted);
  REQUIRE(fetch != nullptr);
  CHECK(fetch->bytes() == 4 * kPayloadBytes);
  std::vector<RowNumber> expected = {7, 8, 140, 300};
  SECTION("nothing has changed") {}
  SECTION("a row was written anew, and its segment is in another use") {
    for (const RowNumber row : Numbers(0, kSegmentRows)) log.rows->Forget(row);
    REQUIRE_OK(log.Write(Numbers(0, 2 * kSegmentRows), 2));
    expected = {300};
  }
  SECTION("a row is gone") {
    log.rows->Forget(8);
    expected = {7, 140, 300};
  }
  SECTION("a record is damaged") {
    REQUIRE_OK(log.file->Write(0, 7 * kRecordBytes + 100, "?"));
    expected = {8, 140, 300};
  }
  SECTION("the bucket was made anew, with the same rows in the same places") {
    log.rows = std::make_unique<RowLog>(log.file, kPayloadBytes);
    REQUIRE_OK(log.Write(Numbers(0, 3 * kSegmentRows), 2));
    expected = {};
  }
  fetch->Start();
  fetch->Finish();
  std::vector<RowNumber> arrived;
  for (const FetchedPayload& it : log.rows->Arrived(*fetch)) {
    arrived.push_back(it.row);
    CHECK(std::string(it.payload, kPayloadBytes) == Payload(it.row, 1));
  }
  CHECK(arrived == expected);
}

TEST_CASE("RowLog: a full disk ends a write and loses no row of before", "[server][storage]") {
  Log log("full");
  REQUIRE_OK(log.Write(Numbers(0, 100), 1));
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{.rlim_cur = 2 * kSegmentRows * kRecordBytes, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const absl::Status full = log.Write(Numbers(100, 1000), 1);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK_STATUS(full, absl::StatusCode::kResourceExhausted, TestPath("full"));
  REQUIRE_OK_AND_ASSIGN(const auto found, log.Read({0, 99}));
  CHECK(found == std::vector<std::string>{Payload(0, 1), Payload(99, 1)});
}

}  // namespace
}  // namespace capstan::server::row_log_test
