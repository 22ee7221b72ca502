#include "common/net/grpc/grpc_acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/storage/files/descriptor.h"
#include "common/testing/status_matchers.h"

namespace capstan::grpc_acceptor_test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

// Keeps the connections that it is handed.
struct Handed {
  absl::Mutex mutex;
  std::vector<Descriptor> sockets ABSL_GUARDED_BY(mutex);

  int count() {
    absl::MutexLock lock(&mutex);
    return static_cast<int>(sockets.size());
  }
};

class FakeServer final : public GrpcAcceptor::Server {
 public:
  explicit FakeServer(Handed* handed) : handed_(*handed) {}
  void HandleNewConnection(NewConnectionParameters* connection) override {
    absl::MutexLock lock(&handed_.mutex);
    handed_.sockets.emplace_back(connection->fd);
  }

 private:
  Handed& handed_;
};

struct Fixture {
  explicit Fixture(int connections_max) {
    auto listening =
        GrpcAcceptor::Listen({.listen = "127.0.0.1:0", .connections_max = connections_max});
    REQUIRE_OK(listening);
    acceptor = *std::move(listening);
    REQUIRE_OK(acceptor->Start(std::make_unique<FakeServer>(&handed)));
  }

  // A connection from 127.0.0.`host`, which blocks.
  Descriptor Connect(int host = 1) const {
    Descriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ConnectFrom(made, host);
    return made;
  }
  void ConnectFrom(const Descriptor& made, int host) const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl((127u << 24) + static_cast<uint32_t>(host));
    const auto* const raw = reinterpret_cast<const sockaddr*>(&address);
    REQUIRE(bind(made.get(), raw, sizeof(address)) == 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(acceptor->port()));
    REQUIRE(connect(made.get(), raw, sizeof(address)) == 0);
  }
  void AwaitHanded(int count) {
    const absl::Time end = absl::Now() + kPatience;
    while (handed.count() < count) REQUIRE(absl::Now() < end);
    CHECK(handed.count() == count);
  }

  Handed handed;
  std::unique_ptr<GrpcAcceptor> acceptor;
};

bool IsClosed(const Descriptor& socket) {
  char byte;
  const ssize_t got = recv(socket.get(), &byte, 1, 0);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

TEST_CASE("GrpcAcceptor: closes connections beyond those that an address may have", "[net]") {
  Fixture f(4);
  const Descriptor first = f.Connect(), second = f.Connect();
  f.AwaitHanded(2);
  CHECK(IsClosed(f.Connect()));
  const Descriptor other = f.Connect(/*host=*/2);
  f.AwaitHanded(3);
  {
    absl::MutexLock lock(&f.handed.mutex);
    f.handed.sockets.pop_back();  // The server closes it, and does not tell.
    f.handed.sockets.pop_back();
  }
  const absl::Time end = absl::Now() + kPatience;
  std::vector<Descriptor> more;
  while (f.handed.count() < 2) {  // It looks for closed ones now and then.
    REQUIRE(absl::Now() < end);
    more.push_back(f.Connect());
  }
}

TEST_CASE("GrpcAcceptor: closes connections beyond those that all may have", "[net]") {
  Fixture f(4);
  std::vector<Descriptor> all;
  for (int host = 1; host <= 4; ++host) all.push_back(f.Connect(host));
  f.AwaitHanded(4);
  CHECK(IsClosed(f.Connect(/*host=*/5)));
  f.acceptor->Stop();
  f.acceptor->Stop();
  CHECK(f.handed.count() == 4);
}

TEST_CASE("GrpcAcceptor: goes on after there were no descriptors", "[net]") {
  Fixture f(100);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit low = before;
  low.rlim_cur = 128;
  const Descriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  {
    std::vector<Descriptor> rest;
    do {
      rest.emplace_back(dup(made.get()));
    } while (rest.back().ok());
    f.ConnectFrom(made, 1);  // The kernel accepts it. The acceptor gets no descriptor for it.
    absl::MutexLock lock(&f.handed.mutex);
    const auto any = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(f.handed.mutex) {
      return !f.handed.sockets.empty();
    };
    CHECK_FALSE(f.handed.mutex.AwaitWithTimeout(absl::Condition(&any), absl::Milliseconds(50)));
  }
  f.AwaitHanded(1);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

}  // namespace
}  // namespace capstan::grpc_acceptor_test
