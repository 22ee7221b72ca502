#include "common/net/frame/frame_writer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/net/frame/frame_reader.h"
#include "common/net/socket/socket_stream.h"
#include "common/storage/files/descriptor.h"
#include "common/testing/status_matchers.h"

namespace capstan::frame_writer_test {
namespace {

struct Pair {
  Pair() {
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, files) == 0);
    for (int i = 0; i < 2; ++i) streams[i] = PlainStream(Descriptor(files[i]));
  }
  // Reads the frames that have arrived.
  std::vector<FrameReader::Frame> Read() {
    std::vector<FrameReader::Frame> frames;
    for (;;) {
      auto received = reader.Receive(*streams[0]);
      if (!received.ok() || *received == 0) return frames;
      for (;;) {
        REQUIRE_OK_AND_ASSIGN(auto frame, reader.Next());
        if (!frame.has_value()) break;
        frames.push_back(*std::move(frame));
      }
    }
  }
  int files[2];
  std::unique_ptr<SocketStream> streams[2];
  FrameReader reader;
};

constexpr absl::Duration kNone = absl::ZeroDuration();
constexpr FrameHead kHead = {.kind = FrameKind::kAnswer, .call = 5};

TEST_CASE("Frame writer: what is sent arrives", "[net][frame]") {
  Pair pair;
  FrameWriter writer(pair.streams[1].get());
  absl::Cord payload("abc");
  payload.Append(std::string(5000, 'x'));
  CHECK_FALSE(writer.Send(kHead, payload, kNone));
  CHECK_FALSE(writer.Send(kHead, absl::Cord(), kNone));
  CHECK(writer.queued_bytes() == 0);
  const auto frames = pair.Read();
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].payload == payload);
  CHECK(frames[1].head.call == 5);
}

// As an encrypted stream, whose records have tags.
class WithTags final : public SocketStream {
 public:
  explicit WithTags(Descriptor socket)
      : SocketStream(Descriptor(-1)), plain_(PlainStream(std::move(socket))) {}

  absl::StatusOr<short> Handshake() override { return plain_->Handshake(); }
  const std::optional<CertificateFacts>& peer() const override { return plain_->peer(); }
  bool detects_damage() const override { return true; }
  absl::StatusOr<size_t> Receive(absl::Span<const iovec> places) override {
    return plain_->Receive(places);
  }
  absl::StatusOr<size_t> Send(absl::Span<const iovec> pieces) override {
    return plain_->Send(pieces);
  }

 private:
  const std::unique_ptr<SocketStream> plain_;
};

TEST_CASE("Frame writer: payloads have no sum where the stream detects damage", "[net][frame]") {
  int files[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, files) == 0);
  WithTags here{Descriptor(files[0])};
  WithTags there{Descriptor(files[1])};
  FrameWriter writer(&there);
  CHECK_FALSE(writer.Send(kHead, absl::Cord("abc"), kNone));
  CHECK_FALSE(writer.Send(kHead, absl::Cord("de"), kNone));
  FrameReader reader(/*sums=*/false);
  REQUIRE_OK_AND_ASSIGN(const size_t received, reader.Receive(here));
  CHECK(received == 2 * kFrameHeadBytes + 5);
  for (const char* const payload : {"abc", "de"}) {
    REQUIRE_OK_AND_ASSIGN(const auto frame, reader.Next());
    REQUIRE(frame.has_value());
    CHECK(frame->payload == payload);
  }
}

TEST_CASE("Frame writer: a socket that takes no more stalls it, and Flush goes on",
          "[net][frame]") {
  Pair pair;
  FrameWriter writer(pair.streams[1].get());
  const absl::Cord payload(std::string(4 << 20, 'x'));
  CHECK(writer.Send(kHead, payload, kNone));
  CHECK(writer.stalled());
  CHECK_FALSE(writer.Send(kHead, absl::Cord("behind"), kNone));  // Queued.
  CHECK(writer.queued_bytes() > 0);
  std::vector<FrameReader::Frame> frames;
  while (writer.stalled()) {
    for (auto& frame : pair.Read()) frames.push_back(std::move(frame));
    writer.Flush();
  }
  for (auto& frame : pair.Read()) frames.push_back(std::move(frame));
  CHECK(writer.queued_bytes() == 0);
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].payload == payload);
  CHECK(frames[1].payload == "behind");
}

TEST_CASE("Frame writer: what is left to it goes with Flush, or with what is sent",
          "[net][frame]") {
  Pair pair;
  FrameWriter writer(pair.streams[1].get());
  CHECK(writer.Leave(kHead, absl::Cord("left")));
  CHECK(writer.stalled());
  CHECK_FALSE(writer.Leave(kHead, absl::Cord("behind")));
  CHECK_FALSE(writer.Send(kHead, absl::Cord("sent"), kNone));
  CHECK(pair.Read().empty());
  CHECK_FALSE(writer.Flush());
  const auto frames = pair.Read();
  REQUIRE(frames.size() == 3);
  CHECK(frames[0].payload == "left");
  CHECK(frames[2].payload == "sent");
  writer.Close();
  CHECK_FALSE(writer.Leave(kHead, absl::Cord("late")));
}

TEST_CASE("Frame writer: frames of many threads are not mixed up", "[net][frame]") {
  Pair pair;
  FrameWriter writer(pair.streams[1].get());
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&writer, t] {
      for (int i = 0; i < 50; ++i) {
        writer.Send({.kind = FrameKind::kAnswer, .call = t},
                    absl::Cord(std::string(20'000, static_cast<char>('a' + t))), kNone);
      }
    });
  }
  size_t count = 0;
  while (count < 200) {
    if (writer.stalled()) writer.Flush();
    for (const auto& frame : pair.Read()) {
      const auto letter = static_cast<char>('a' + frame.head.call);
      REQUIRE(frame.payload == std::string(20'000, letter));
      ++count;
    }
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(writer.queued_bytes() == 0);
}

TEST_CASE("Frame writer: lets go of payloads when it is closed or the peer is gone",
          "[net][frame]") {
  Pair pair;
  FrameWriter writer(pair.streams[1].get());
  auto alive = std::make_shared<std::string>(4 << 20, 'x');
  const std::weak_ptr<std::string> watch = alive;
  absl::Cord payload = absl::MakeCordFromExternal(*alive, [alive] {});
  alive.reset();
  CHECK(writer.Send(kHead, std::move(payload), kNone));
  payload = absl::Cord();
  CHECK_FALSE(watch.expired());
  SECTION("closed") {
    writer.Close();
    CHECK(watch.expired());
  }
  SECTION("peer gone") {
    shutdown(pair.files[0], SHUT_RDWR);
    writer.Flush();
    CHECK(watch.expired());
    CHECK_STATUS(writer.error(), absl::StatusCode::kUnavailable, "sending");
  }
  CHECK_FALSE(writer.Send(kHead, absl::Cord("late"), kNone));
  CHECK_FALSE(writer.stalled());
}

}  // namespace
}  // namespace capstan::frame_writer_test
