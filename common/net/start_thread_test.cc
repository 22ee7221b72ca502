#include "common/net/start_thread.h"

#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>
#include <utility>

#include "common/net/data_server.h"
#include "common/net/data_socket.h"
#include "common/net/wake_up.h"
#include "common/testing/status_matchers.h"

namespace capstan {
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

TEST_CASE("StartThread: runs what it is given", "[common]") {
  std::atomic<bool> ran = false;
  REQUIRE_OK_AND_ASSIGN(std::thread thread, StartThread([&] { ran = true; }));
  thread.join();
  CHECK(ran);
}

TEST_CASE("StartThread: a connection that gets no thread is closed, the server goes on",
          "[common]") {
  Machine machine(1);  // The thread that accepts needs one.
  REQUIRE_OK_AND_ASSIGN(const auto server, DataServer::Start(Echo(machine)));
  for (int i = 0; i < 3; ++i) CHECK_FALSE(Connect(*server).ok());
  machine.Give(1);
  REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<SocketStream> stream, Connect(*server));
  CHECK_FALSE(Connect(*server).ok());
}

TEST_CASE("StartThread: without a thread that accepts there is no data server", "[common]") {
  Machine machine(0);
  CHECK_STATUS(DataServer::Start(Echo(machine)).status(), absl::StatusCode::kUnavailable,
               "no more threads");
}

}  // namespace
}  // namespace capstan
