// A client's first bytes on a data connection, given to GreetClient: it lets in exactly the clients
// that send the greeting and the token, answers no others, and leaves the bytes that follow to the
// reader of frames.
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/frame/frame.h"
#include "common/net/socket/socket_stream.h"
#include "common/net/socket/wake_up.h"
#include "common/net/testing/greet_client.h"
#include "common/security/capability.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/little_endian.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

constexpr absl::string_view kHello(kGreeting, sizeof(kGreeting));

// Reads a socket to its end.
std::string ReadRest(int socket) {
  std::string all;
  char room[4096];
  while (true) {
    const ssize_t got = recv(socket, room, sizeof(room), 0);
    if (got <= 0) return all;
    all.append(room, static_cast<size_t>(got));
  }
}

// Greeting, token and the length of the capability that follows.
constexpr size_t kHeadBytes = kHello.size() + kTokenBytes + kGreetingLengthBytes;

// REQUIRES: `said` has kHeadBytes.
size_t WholeBytes(const std::string& said) {
  return kHeadBytes + GetLittleEndian<uint16_t>(said, kHeadBytes - kGreetingLengthBytes);
}

absl::StatusCode Expected(const std::string& said, absl::string_view token) {
  if (said.size() < kHeadBytes) return absl::StatusCode::kUnavailable;
  const size_t whole = WholeBytes(said);
  if (whole > kHeadBytes + kCapabilityBytesMax) return absl::StatusCode::kInvalidArgument;
  if (said.size() < whole) return absl::StatusCode::kUnavailable;
  if (!absl::StartsWith(said, kHello)) return absl::StatusCode::kInvalidArgument;
  return absl::StartsWith(absl::string_view(said).substr(kHello.size()), token)
             ? absl::StatusCode::kOk
             : absl::StatusCode::kPermissionDenied;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const WakeUp kNeverStopped;
  Input input(data, size);
  const std::string token(input.Take(kTokenBytes));
  // A right greeting, up to some byte, so that a token need not be guessed.
  const std::string right = absl::StrCat(kHello, token, std::string(kGreetingLengthBytes, '\0'));
  std::string said = right.substr(0, input.Byte());
  absl::StrAppend(&said, input.Rest());

  int ends[2];
  FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const Descriptor client(ends[0]);
  const std::unique_ptr<SocketStream> stream = PlainStream(Descriptor(ends[1]));
  FUZZ_CHECK(send(client.get(), said.data(), said.size(), 0) == static_cast<ssize_t>(said.size()));
  shutdown(client.get(), SHUT_WR);
  const absl::Status greeted =
      testing::GreetClient(*stream, token, absl::Seconds(5), kNeverStopped.descriptor());
  FUZZ_CHECK(greeted.code() == Expected(said, token));
  if (greeted.ok()) {
    FUZZ_CHECK(ReadRest(stream->socket()) == said.substr(WholeBytes(said)));
  }
  shutdown(stream->socket(), SHUT_WR);
  FUZZ_CHECK(ReadRest(client.get()) == (greeted.ok() ? kHello : ""));
  return 0;
}

}  // namespace capstan::fuzz
