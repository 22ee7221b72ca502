#include "server/log/frames/record_file.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"

namespace capstan::server::record_file_test {
namespace {

const std::vector<std::string> kPayloads = {"one", "", std::string(300, '\0'), "four"};

// The end of each frame; the last one is that of the file.
std::vector<size_t> Ends() {
  std::vector<size_t> ends;
  size_t end = 0;
  for (const std::string& payload : kPayloads) {
    ends.push_back(end += payload.size() + kFrameOverheadBytes);
  }
  return ends;
}

// Each frame is synced before the next is written.
std::string File() {
  std::string file;
  uint64_t sequence = 0;
  for (const std::string& payload : kPayloads) {
    AppendFrame({7, sequence++, static_cast<int64_t>(file.size())}, payload, &file);
  }
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
    outcome.torn = !reader.torn().ok();
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
  std::vector<size_t> ends = Ends();
  ends.insert(ends.begin(), 0);
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

TEST_CASE("RecordFile: any flipped bit in what was synced is found and named",
          "[server][storage]") {
  const std::string file = File();
  const size_t synced = Ends()[2];
  for (size_t bit = 0; bit < file.size() * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const Outcome outcome = ReadAll(flipped);
    INFO("bit " << bit << ": " << outcome.status);
    if (bit < synced * 8) {
      REQUIRE(outcome.status.code() == absl::StatusCode::kDataLoss);
      REQUIRE(std::string(outcome.status.message()).find("x.log: at byte ") == 0);
    } else {  // Nobody knows that the last frame was ever whole.
      REQUIRE_OK(outcome.status);
      REQUIRE(outcome.torn);
      REQUIRE(outcome.frames == 3);
    }
  }
}

TEST_CASE("RecordFile: a hole in what was not synced is a tear, whatever lies behind it (issue 20)",
          "[server][storage]") {
  // Synced up to a random frame; of the rest each byte is there, zero, or an old one.
  int holes = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    uint64_t draws = 0;
    const auto random = [&](uint64_t below) { return PhiloxWord(seed, draws++) % below; };
    std::string file;
    uint64_t sequence = 0;
    const auto append = [&](int64_t synced) {
      AppendFrame({7, sequence++, synced}, std::string(random(200), 'p'), &file);
    };
    int64_t synced = 0;
    for (uint64_t batches = 1 + random(4); batches > 0; --batches) {
      synced = static_cast<int64_t>(file.size());
      for (uint64_t frames = random(3); frames > 0; --frames) append(synced);
    }
    const size_t whole = static_cast<size_t>(synced);
    for (int i = 0; i < 6; ++i) append(synced);
    for (size_t at = whole; at < file.size(); at += 64) {
      if (random(3) == 0) continue;
      const size_t count = std::min<size_t>(64, file.size() - at);
      file.replace(at, count, count, random(2) == 0 ? '\0' : static_cast<char>(random(256)));
      ++holes;
    }
    INFO("seed " << seed);
    RecordReader reader("x.log", file);
    absl::StatusOr<std::optional<Frame>> frame;
    do {
      frame = reader.Next();
      REQUIRE_OK(frame);
    } while (frame->has_value());
    REQUIRE(reader.whole_bytes() >= synced);
    REQUIRE(reader.torn().ok() == (reader.whole_bytes() == std::ssize(file)));
  }
  CHECK(holes > 1000);
}

TEST_CASE("RecordFile: zeros in the middle, and missing and doubled frames, are damage",
          "[server][storage]") {
  const std::string file = File();
  const size_t first_end = Ends()[0];
  std::string holed = file;
  holed.replace(Ends()[1] + 50, 20, 20, '\0');
  holed[Ends()[1] + 5] = 'x';
  CHECK_STATUS(ReadAll(holed).status, absl::StatusCode::kDataLoss,
               "x.log: at byte 99 the header has the checksum");
  const std::string first = file.substr(0, first_end);
  const std::string rest = file.substr(first_end);
  // All of it: the place of each header says that it cannot lie there.
  CHECK(ReadAll(rest).frames == 0);
  CHECK_STATUS(ReadAll(first + std::string(60, 'x') + rest).status, absl::StatusCode::kDataLoss,
               "at byte 51 there is no frame, expected one; ");
  CHECK_STATUS(ReadAll(first + file).status, absl::StatusCode::kDataLoss,
               "at byte 51 there is frame 0, expected 1; ");
}

TEST_CASE("RecordFile: what only looks like a header proves nothing", "[server][storage]") {
  std::string file;
  AppendFrame({7, 0, 0}, "one", &file);
  const size_t end = file.size();
  SECTION("of an earlier frame") { AppendFrame({7, 0, 60}, "", &file.append(20, 'x')); }
  SECTION("synced behind itself") { AppendFrame({7, 2, 100}, "", &file.append(20, 'x')); }
  SECTION("changed") {
    AppendFrame({7, 2, 60}, "", &file.append(20, 'x'));
    file[end + 20 + 9] = 'x';
  }
  SECTION("cut short") {
    AppendFrame({7, 2, 60}, "", &file.append(20, 'x'));
    file.resize(end + 20 + 39);
  }
  const Outcome outcome = ReadAll(file);
  REQUIRE_OK(outcome.status);
  CHECK(outcome.torn);
  CHECK(outcome.frames == 1);
}

TEST_CASE("RecordFile: a frame of format 1 is refused, not taken for a torn end",
          "[server][storage]") {
  std::string file = File();
  file.replace(0, 4, "CAPF");
  CHECK_STATUS(ReadAll(file).status, absl::StatusCode::kDataLoss,
               "x.log: at byte 0 there is a frame of format 1, expected format 4");
  CHECK_STATUS(ReadAll(file.substr(0, 40)).status, absl::StatusCode::kDataLoss, "format 1");
}

TEST_CASE("RecordFile: a piece is read with the places of the file", "[server][storage]") {
  const std::string file = File();
  RecordReader reader("x.log", absl::string_view(file).substr(51), 1, 51);
  REQUIRE_OK_AND_ASSIGN(const std::optional<Frame> frame, reader.Next());
  REQUIRE(frame.has_value());
  CHECK(frame->begin == 51);
  CHECK(frame->end == 99);
}

}  // namespace
}  // namespace capstan::server::record_file_test
