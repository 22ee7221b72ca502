#include "common/net/socket/tls_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"

namespace capstan::tls_stream_test {
namespace {

using testing::TestAuthority;

// A server and a worker that are connected; both ends are used by this thread.
struct Pair {
  Pair() {
    int files[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, files) == 0);
    const auto open = [](int file, const TlsEnd& end) {
      auto stream = TlsStream(Descriptor(file), end);
      REQUIRE_OK(stream);
      return *std::move(stream);
    };
    server = open(files[0], {.folder = authority.MakeFolder("s", PeerRole::kServer, "s-1")});
    worker =
        open(files[1],
             {.folder = authority.MakeFolder("w", PeerRole::kWorker, "w-1"),
              .expected = Identity{.cluster = "test", .role = PeerRole::kServer, .name = "s-1"}});
    for (bool done = false; !done;) {
      REQUIRE_OK_AND_ASSIGN(const short of_worker, worker->Handshake());
      REQUIRE_OK_AND_ASSIGN(const short of_server, server->Handshake());
      done = of_worker == 0 && of_server == 0;
    }
  }

  const TestAuthority authority;
  std::unique_ptr<SocketStream> server, worker;
};

// Sends `bytes` from one end, in pieces of random sizes, and receives them at the other.
class Transfer {
 public:
  Transfer(SocketStream* from, SocketStream* to, std::string bytes, unsigned seed)
      : from_(*from), to_(*to), bytes_(std::move(bytes)), random_(seed) {}

  bool done() const { return received_.size() == bytes_.size(); }
  const std::string& bytes() const { return bytes_; }
  const std::string& received() const { return received_; }
  size_t sent() const { return sent_; }

  // The pieces are those of the last call, less what was sent.
  void Send() {
    std::vector<iovec> pieces;
    size_t begin = 0;
    for (const size_t end : ends_) {
      if (end > sent_) {
        const size_t from = std::max(begin, sent_);
        pieces.push_back({.iov_base = bytes_.data() + from, .iov_len = end - from});
      }
      begin = end;
    }
    while (pieces.size() < 20 && begin < bytes_.size()) {
      const size_t size = std::min(Draw(), bytes_.size() - begin);
      pieces.push_back({.iov_base = bytes_.data() + begin, .iov_len = size});
      begin += size;
      ends_.push_back(begin);
    }
    REQUIRE_OK_AND_ASSIGN(const size_t sent, from_.Send(pieces));
    sent_ += sent;
  }
  void Receive() {
    std::string place(Draw() + 1, '\0');
    const iovec places[] = {
        {.iov_base = place.data(), .iov_len = place.size() / 2},
        {.iov_base = place.data() + place.size() / 2, .iov_len = place.size() - place.size() / 2}};
    REQUIRE_OK_AND_ASSIGN(const size_t received, to_.Receive(places));
    received_.append(place, 0, received);
    REQUIRE(received_.size() <= bytes_.size());
  }

 private:
  // Many are smaller than a record, some larger than a batch.
  size_t Draw() { return size_t{1} << std::uniform_int_distribution<int>(0, 19)(random_); }

  SocketStream& from_;
  SocketStream& to_;
  std::string bytes_, received_;
  std::vector<size_t> ends_;  // Where each piece so far ends.
  size_t sent_ = 0;
  std::mt19937 random_;
};

std::string RandomBytes(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST_CASE("TLS stream: bytes arrive in order, both ways at once, whatever the pieces",
          "[net][security]") {
  Pair pair;
  const unsigned seed = GENERATE(1u, 2u, 3u, 4u);
  Transfer up(pair.worker.get(), pair.server.get(), RandomBytes(5'000'000, seed), seed);
  Transfer down(pair.server.get(), pair.worker.get(), RandomBytes(4'000'000, seed + 100), seed);
  std::mt19937 random(seed);
  while (!up.done() || !down.done()) {
    Transfer& one = random() % 2 == 0 ? up : down;
    random() % 2 == 0 ? one.Send() : one.Receive();
  }
  CHECK(up.received() == up.bytes());
  CHECK(down.received() == down.bytes());
}

TEST_CASE("TLS stream: what the peer does not take is not said to be sent", "[net][security]") {
  Pair pair;
  Transfer up(pair.worker.get(), pair.server.get(), RandomBytes(8'000'000, 1), 1);
  size_t before;
  do {
    before = up.sent();
    up.Send();
  } while (up.sent() > before);
  CHECK(up.sent() < 4'000'000);  // The socket's buffer, and no batch beside it.
  while (!up.done()) {
    up.Receive();
    up.Send();
  }
  CHECK(up.received() == up.bytes());
}

TEST_CASE("TLS stream: the end of the connection is told at both ends", "[net][security]") {
  Pair pair;
  pair.server.reset();
  char byte = 0;
  const iovec place[] = {{.iov_base = &byte, .iov_len = 1}};
  CHECK_STATUS(pair.worker->Receive(place).status(), absl::StatusCode::kUnavailable, "");
  CHECK_STATUS(pair.worker->Send(place).status(), absl::StatusCode::kUnavailable, "");
}

}  // namespace
}  // namespace capstan::tls_stream_test
