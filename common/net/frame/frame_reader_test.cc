#include "common/net/frame/frame_reader.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/net/frame/testing/whole_frame.h"
#include "common/net/socket/socket_stream.h"
#include "common/storage/files/descriptor.h"
#include "common/testing/status_matchers.h"

namespace capstan::frame_reader_test {
namespace {

struct Pair {
  Pair() {
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, files) == 0);
    stream = PlainStream(Descriptor(files[0]));
  }
  ~Pair() { close(files[1]); }
  void Write(const std::string& bytes) {
    REQUIRE(write(files[1], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  int files[2];
  std::unique_ptr<SocketStream> stream;  // Over files[0].
};

// All that have been received.
void TakeFrames(FrameReader* reader, std::vector<FrameReader::Frame>* frames,
                const FrameReader::PlacesOf& places_of = nullptr) {
  for (;;) {
    REQUIRE_OK_AND_ASSIGN(auto frame, reader->Next(places_of));
    if (!frame.has_value()) return;
    frames->push_back(*std::move(frame));
  }
}

std::string FrameOf(uint64_t call, const std::string& payload) {
  return EncodeFrame({.kind = FrameKind::kRequest, .what = 1, .call = call}, payload);
}

TEST_CASE("Frame reader: without sums a payload ends with its last byte", "[net][frame]") {
  Pair pair;
  FrameReader reader(/*sums=*/false);
  const auto with_sum = FrameOf(7, "abcd");
  pair.Write(with_sum.substr(0, with_sum.size() - kFrameSumBytes) + FrameOf(8, ""));
  std::vector<FrameReader::Frame> frames;
  REQUIRE_OK(reader.Receive(*pair.stream));
  TakeFrames(&reader, &frames);
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].payload == "abcd");
  CHECK(frames[1].head.call == 8);
}

// Payloads are "#", a digit N, and N times 1,000 bytes that have a place, and so on. (Cords copy
// what is much smaller.)
class Thousands final : public PayloadPlaces {
 public:
  explicit Thousands(std::string* to) : to_(to) {}
  std::optional<Place> Next(absl::string_view come) override {
    if (come.size() < 2) return std::nullopt;
    if (come[0] != '#') return Place();
    const auto size = static_cast<size_t>(come[1] - '0') * 1000;
    used_ += size;
    return Place{.skip = 2, .to = {to_->data() + used_ - size, size}};
  }

 private:
  std::string* to_;
  size_t used_ = 0;
};

TEST_CASE("Frame reader: frames come out whole, wherever they were torn", "[net][frame]") {
  const std::string payload(300, 'x');
  const std::string bytes = FrameOf(1, "") + FrameOf(2, payload) + FrameOf(3, "abc");
  for (const size_t step : {size_t{1}, size_t{7}, size_t{16}, size_t{100}, bytes.size()}) {
    Pair pair;
    FrameReader reader;
    std::vector<FrameReader::Frame> frames;
    for (size_t at = 0; at < bytes.size(); at += step) {
      pair.Write(bytes.substr(at, step));
      REQUIRE_OK(reader.Receive(*pair.stream));
      TakeFrames(&reader, &frames);
    }
    CAPTURE(step);
    REQUIRE(frames.size() == 3);
    CHECK(frames[0].head.call == 1);
    CHECK(frames[0].payload.empty());
    CHECK(frames[1].payload == payload);
    CHECK(frames[2].head.call == 3);
    CHECK(frames[2].payload == "abc");
  }
}

TEST_CASE("Frame reader: a frame with a flipped bit never comes out (issue 20)", "[net][frame]") {
  const std::string bytes = FrameOf(2, "#1" + std::string(1000, 'x'));
  const size_t step = GENERATE(size_t{9}, size_t{5000});
  for (size_t bit = 0; bit < 8 * bytes.size(); bit += step == 9 ? 37 : 1) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    damaged += FrameOf(3, "abc");
    Pair pair;
    FrameReader reader;
    std::string there(1000, ' ');
    const auto places_of = [&](const FrameHead&) { return std::make_shared<Thousands>(&there); };
    absl::StatusOr<std::optional<FrameReader::Frame>> frame = std::nullopt;
    for (size_t at = 0; frame.ok() && at < damaged.size(); at += step) {
      pair.Write(damaged.substr(at, step));
      REQUIRE_OK(reader.Receive(*pair.stream));
      frame = reader.Next(places_of);
      if (frame.ok()) REQUIRE_FALSE(frame->has_value());
    }
    CAPTURE(bit);
    CHECK_STATUS(frame.status(), absl::StatusCode::kDataLoss, "checksum");
    CHECK_STATUS(DecodeFrame(absl::string_view(damaged).substr(0, bytes.size())),
                 absl::StatusCode::kDataLoss, "damaged on its way");
  }
}

TEST_CASE("Frame reader: a long payload comes in pieces, with the frame behind it",
          "[net][frame]") {
  std::string payload(FrameReader::kPieceBytes * 2 + 5, '\0');
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i * 31 >> 8);
  const std::string bytes = FrameOf(1, payload) + FrameOf(2, "next");
  Pair pair;
  FrameReader reader;
  std::vector<FrameReader::Frame> frames;
  for (size_t at = 0; at < bytes.size(); at += 100'000) {
    pair.Write(bytes.substr(at, 100'000));
    for (bool more = true; more;) {
      REQUIRE_OK_AND_ASSIGN(const size_t received, reader.Receive(*pair.stream));
      more = received > 0;
      TakeFrames(&reader, &frames);
    }
  }
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].payload == payload);
  CHECK(frames[1].payload == "next");
}

TEST_CASE("Frame reader: what has a place is received there, wherever it is torn", "[net][frame]") {
  const std::string payload =
      "#3" + std::string(3000, 'a') + "#5" + std::string(5000, 'b') + "the rest";
  const std::string bytes = FrameOf(1, payload) + FrameOf(2, payload);
  for (const size_t step : {size_t{1}, size_t{7}, size_t{19}, size_t{4000}, bytes.size()}) {
    Pair pair;
    FrameReader reader;
    std::string there(8000, ' ');
    std::vector<FrameReader::Frame> frames;
    const auto places_of = [&](const FrameHead& head) {  // The second has none.
      return head.call == 1 ? std::make_shared<Thousands>(&there) : nullptr;
    };
    for (size_t at = 0; at < bytes.size(); at += step) {
      pair.Write(bytes.substr(at, step));
      for (size_t received = 1; received > 0;) {
        REQUIRE_OK_AND_ASSIGN(received, reader.Receive(*pair.stream));
        TakeFrames(&reader, &frames, places_of);
      }
    }
    CAPTURE(step);
    REQUIRE(frames.size() == 2);
    CHECK(frames[0].payload == payload);
    CHECK(frames[1].payload == payload);
    CHECK(there == std::string(3000, 'a') + std::string(5000, 'b'));
    bool lies_there = false;
    for (absl::string_view chunk : frames[0].payload.Chunks()) {
      lies_there = lies_there || chunk.data() == there.data() + 3000;
    }
    CHECK(lies_there);
  }
}

TEST_CASE("Frame reader: places that go beyond the payload are not used", "[net][frame]") {
  Pair pair;
  FrameReader reader;
  std::string there(9000, ' ');
  const std::string payload = "#9" + std::string(8999, 'a');
  pair.Write(FrameOf(1, payload));
  REQUIRE_OK(reader.Receive(*pair.stream));
  REQUIRE_OK_AND_ASSIGN(const auto frame, reader.Next([&](const FrameHead&) {
    return std::make_shared<Thousands>(&there);
  }));
  REQUIRE(frame.has_value());
  CHECK(frame->payload == payload);
  CHECK(there == std::string(9000, ' '));
}

TEST_CASE("Frame reader: nothing is written to places that are dropped", "[net][frame]") {
  Pair pair;
  FrameReader reader;
  std::string there(5000, ' ');
  const auto places_of = [&](const FrameHead&) { return std::make_shared<Thousands>(&there); };
  const std::string bytes =
      FrameOf(1, "#2" + std::string(2000, 'a') + "#3" + std::string(3000, 'b')) +
      FrameOf(2, "next");
  const auto read = [&](const std::string& part) -> std::optional<FrameReader::Frame> {
    pair.Write(part);
    REQUIRE_OK(reader.Receive(*pair.stream));
    REQUIRE_OK_AND_ASSIGN(std::optional<FrameReader::Frame> frame, reader.Next(places_of));
    return frame;
  };
  REQUIRE_FALSE(read(bytes.substr(0, 1004)).has_value());
  reader.DropPlaces(2);  // Another call's.
  REQUIRE_FALSE(read(bytes.substr(1004, 20)).has_value());
  reader.DropPlaces(1);
  REQUIRE(there == std::string(1002, 'a') + std::string(3998, ' '));
  const auto dropped = read(bytes.substr(1024));
  REQUIRE(dropped.has_value());
  CHECK(dropped->payload.size() == 5004);
  REQUIRE_OK_AND_ASSIGN(auto next, reader.Next(places_of));
  while (!next.has_value()) {
    REQUIRE_OK(reader.Receive(*pair.stream));
    REQUIRE_OK_AND_ASSIGN(next, reader.Next(places_of));
  }
  CHECK(next->payload == "next");
  CHECK(there == std::string(1002, 'a') + std::string(3998, ' '));
}

TEST_CASE("Frame reader: a head that cannot be ends it", "[net][frame]") {
  Pair pair;
  FrameReader reader;
  pair.Write("GET / HTTP/1.1\r\nHost: a\r\n");
  REQUIRE_OK(reader.Receive(*pair.stream));
  CHECK_STATUS(reader.Next(), absl::StatusCode::kDataLoss, "a frame's head with the checksum");
}

TEST_CASE("Frame reader: a peer that closes in mid-frame is an error", "[net][frame]") {
  Pair pair;
  FrameReader reader;
  pair.Write(FrameOf(1, "abcdef").substr(0, 23));
  REQUIRE_OK_AND_ASSIGN(const size_t received, reader.Receive(*pair.stream));
  CHECK(received == 23);
  REQUIRE_OK_AND_ASSIGN(const auto frame, reader.Next());
  CHECK_FALSE(frame.has_value());
  REQUIRE_OK_AND_ASSIGN(const size_t none, reader.Receive(*pair.stream));
  CHECK(none == 0);
  shutdown(pair.files[1], SHUT_RDWR);
  CHECK_STATUS(reader.Receive(*pair.stream), absl::StatusCode::kUnavailable, "closed");
}

}  // namespace
}  // namespace capstan::frame_reader_test
