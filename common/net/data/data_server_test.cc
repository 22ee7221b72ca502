#include "common/net/data/data_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "common/net/frame/data_socket.h"
#include "common/net/socket/start_thread.h"
#include "common/net/socket/wake_up.h"
#include "common/storage/files/descriptor.h"
#include "common/testing/status_matchers.h"

namespace capstan::data_server_test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

// A machine that has so many threads to give, and no more.
class Machine {
 public:
  explicit Machine(int threads) : left_(threads) {}
  ThreadStarter Starter() {
    return [this](std::function<void()> body) -> absl::StatusOr<std::thread> {
      if (left_-- > 0) return StartThread(std::move(body));
      return absl::UnavailableError("no more threads");
    };
  }
  void Give(int threads) { left_ = threads; }

 private:
  std::atomic<int> left_;
};

DataServer::Options Echo(Machine& machine) {
  return {.listen = "127.0.0.1:0",
          .handler =
              [](DataMethod, absl::Cord body, const DataServer::Done& done) {
                done(std::move(body));
                return DataServer::Cancel();
              },
          .start_thread = machine.Starter()};
}

absl::StatusOr<std::unique_ptr<SocketStream>> Connect(const DataServer& server) {
  WakeUp never;
  return ConnectForData({.host = "127.0.0.1", .port = server.port()}, server.token(), kPatience,
                        never.descriptor());
}

// A TCP connection over loopback, which blocks.
Descriptor ConnectTo(int port) {
  Descriptor connected(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool there =
      connect(connected.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  return there ? std::move(connected) : Descriptor(-1);
}

TEST_CASE("DataServer: a connection that gets no thread is closed, the server goes on",
          "[common]") {
  Machine machine(1);  // The thread that accepts needs one.
  REQUIRE_OK_AND_ASSIGN(const auto server, DataServer::Start(Echo(machine)));
  for (int i = 0; i < 3; ++i) CHECK_FALSE(Connect(*server).ok());
  machine.Give(1);
  REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<SocketStream> stream, Connect(*server));
  CHECK_FALSE(Connect(*server).ok());
}

TEST_CASE("DataServer: connections whose peers say nothing cost no thread", "[common]") {
  Machine machine(2);
  REQUIRE_OK_AND_ASSIGN(const auto server, DataServer::Start(Echo(machine)));
  std::vector<Descriptor> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(ConnectTo(server->port()));
    REQUIRE(silent.back().ok());
  }
  REQUIRE_OK(Connect(*server));
  // More than one address may have. The oldest is closed first.
  char byte;
  CHECK(recv(silent.front().get(), &byte, 1, 0) == 0);
  CHECK(recv(silent.back().get(), &byte, 1, MSG_DONTWAIT) < 0);
}

TEST_CASE("DataServer: without a thread that accepts there is none", "[common]") {
  Machine machine(0);
  CHECK_STATUS(DataServer::Start(Echo(machine)).status(), absl::StatusCode::kUnavailable,
               "no more threads");
}

}  // namespace
}  // namespace capstan::data_server_test
