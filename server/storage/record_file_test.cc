#include "server/storage/record_file.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::server {
namespace {

const std::vector<std::string> kPayloads = {"one", "", std::string(300, '\0'), "four"};

std::string File() {
  std::string file;
  uint64_t sequence = 0;
  for (const std::string& payload : kPayloads) AppendFrame(7, sequence++, payload, &file);
  return file;
}

struct Outcome {
  absl::Status status;
  int frames = 0;
  bool torn = false;
};

Outcome ReadAll(const std::string& file) {
  RecordReader reader("x.log", file);
  Outcome outcome;
  while (true) {
    const absl::StatusOr<std::optional<Frame>> frame = reader.Next();
    outcome.status = frame.status();
    outcome.torn = reader.torn();
    if (!frame.ok() || !frame->has_value()) return outcome;
    const size_t index = static_cast<size_t>(outcome.frames++);
    REQUIRE((*frame)->payload == kPayloads.at(index));
    REQUIRE((*frame)->sequence == index);
    REQUIRE((*frame)->type == 7);
  }
}

TEST_CASE("RecordFile: frames are read as they were written", "[server][storage]") {
  const Outcome outcome = ReadAll(File());
  REQUIRE_OK(outcome.status);
  CHECK(outcome.frames == 4);
  CHECK_FALSE(outcome.torn);
  CHECK(ReadAll("").frames == 0);
}

TEST_CASE("RecordFile: a file cut short anywhere, also with zeros after it, is only torn",
          "[server][storage]") {
  const std::string file = File();
  std::vector<size_t> ends = {0};
  for (const std::string& payload : kPayloads) {
    ends.push_back(ends.back() + payload.size() + kFrameOverheadBytes);
  }
  for (size_t size = 0; size <= file.size(); ++size) {
    for (const size_t zeros : {size_t{0}, size_t{1}, size_t{31}, size_t{500}}) {
      INFO("cut at " << size << ", " << zeros << " zeros");
      const Outcome outcome = ReadAll(file.substr(0, size) + std::string(zeros, '\0'));
      REQUIRE_OK(outcome.status);
      int whole = 0;
      while (whole < 4 && ends[static_cast<size_t>(whole) + 1] <= size) ++whole;
      REQUIRE(outcome.frames == whole);
      REQUIRE(outcome.torn == (ends[static_cast<size_t>(whole)] < size || zeros > 0));
    }
  }
}

TEST_CASE("RecordFile: any flipped bit is found and named, in the last frame too",
          "[server][storage]") {
  const std::string file = File();
  for (size_t bit = 0; bit < file.size() * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const Outcome outcome = ReadAll(flipped);
    INFO("bit " << bit << ": " << outcome.status);
    REQUIRE(outcome.status.code() == absl::StatusCode::kDataLoss);
    REQUIRE(std::string(outcome.status.message()).find("x.log: at byte ") == 0);
  }
}

TEST_CASE("RecordFile: zeros in the middle, missing and doubled frames are damage",
          "[server][storage]") {
  const std::string file = File();
  std::string holed = file;
  holed.replace(100, 20, 20, '\0');
  CHECK_STATUS(ReadAll(holed).status, absl::StatusCode::kDataLoss, "x.log: at byte 83");
  const std::string first = file.substr(0, 43);
  const std::string rest = file.substr(43);
  CHECK_STATUS(ReadAll(rest).status, absl::StatusCode::kDataLoss, "there is frame 1, expected 0");
  CHECK_STATUS(ReadAll(first + file).status, absl::StatusCode::kDataLoss,
               "at byte 43 there is frame 0, expected 1");
  CHECK_STATUS(ReadAll(first + "0123456789abcdef0123456789abcdef").status,
               absl::StatusCode::kDataLoss, "at byte 43 there is no frame");
}

TEST_CASE("RecordFile: a piece is read with the places of the file", "[server][storage]") {
  const std::string file = File();
  RecordReader reader("x.log", absl::string_view(file).substr(43), 1, 43);
  REQUIRE_OK_AND_ASSIGN(const std::optional<Frame> frame, reader.Next());
  REQUIRE(frame.has_value());
  CHECK(frame->begin == 43);
  CHECK(frame->end == 83);
}

}  // namespace
}  // namespace capstan::server
